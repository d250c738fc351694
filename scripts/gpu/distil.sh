#!/usr/bin/env bash
# Distil teachers into a relation adapter: batch questions to an LLM, soft labels, noise filter, training, evaluation.
#   scripts/gpu/distil.sh candidates.jsonl Qwen/Qwen3-32B modernbert-base [key=value ...]
# candidates.jsonl: from `python -m data.personamem` or any JSONL with id, old, new, group.
# Variables: OUT (default: runs/distilled), and those of relation.sh.
set -euo pipefail
cd "$(dirname "$0")/../.."

candidates="${1:?give a file of candidate pairs}"
teacher="${2:?give the model that labels, as vLLM knows it}"
recipe="${3:?give a recipe of configs/relation/gpu}"
shift 3
out="${OUT:-runs/distilled}"
# Before an LLM works for hours:
test -f "configs/relation/gpu/$recipe.yaml" || exec scripts/gpu/relation.sh "$recipe"
command -v vllm > /dev/null || { echo "vllm is not installed: pip install vllm" >&2; exit 2; }
mkdir -p "$out"
python -m data.label_batch write "$candidates" --model "$teacher" --out "$out/questions.jsonl"
vllm run-batch -i "$out/questions.jsonl" -o "$out/answers.jsonl" --model "$teacher" --enable-prefix-caching
python -m data.label_batch read "$candidates" "$out/answers.jsonl" --out "$out/teacher.jsonl"
# The shipped adapter is a second opinion, of less weight than the LLM's.
python -m training.distil "$candidates" --teacher "$out/teacher.jsonl" --weight 2 --teacher pretrained --weight 1 \
  --out "$out"
DATA="$out" REPORT="${REPORT:-$out/report}" scripts/gpu/relation.sh "$recipe" soft_labels=0.5 out="$out/run" "$@"
