#!/usr/bin/env bash
# Distil teachers into a relation adapter: batch questions to an LLM, soft labels, noise filter, training.
#   scripts/gpu/distil.sh candidates.jsonl Qwen/Qwen3-32B modernbert-base
# candidates.jsonl: from `python -m data.personamem` or any JSONL with id, old, new, group. OUT: folder (runs/distilled).
set -euo pipefail
cd "$(dirname "$0")/../.."

candidates="${1:?give a file of candidate pairs}"
teacher="${2:?give the model that labels, as vLLM knows it}"
recipe="${3:?give a recipe of configs/relation/gpu}"
out="${OUT:-runs/distilled}"
mkdir -p "$out"
python -m data.label_batch write "$candidates" --model "$teacher" --out "$out/questions.jsonl"
vllm run-batch -i "$out/questions.jsonl" -o "$out/answers.jsonl" --model "$teacher" --enable-prefix-caching
python -m data.label_batch read "$candidates" "$out/answers.jsonl" --out "$out/teacher.jsonl"
# The shipped adapter is a second opinion, of less weight than the LLM's.
python -m training.distil "$candidates" --teacher "$out/teacher.jsonl" --weight 2 --teacher pretrained --weight 1 \
  --out "$out"
python -m training.relation "configs/relation/gpu/$recipe.yaml" train="$out/train.jsonl" dev="$out/dev.jsonl" \
  soft_labels=0.5 out="$out/run"
