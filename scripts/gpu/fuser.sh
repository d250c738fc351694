#!/usr/bin/env bash
# A fuser adapter by a GPU recipe, and its measures on the held-out examples:
#   scripts/gpu/fuser.sh qwen3-0.6b
# Variables: EXAMPLES (tested on; default: data/fusion_test.jsonl)  REPORT (default: reports/fuser-RECIPE)
# Expected memory and time stand at the top of each recipe; they are estimates.
set -euo pipefail
cd "$(dirname "$0")/../.."

recipe="${1:?give a recipe of configs/fuser/gpu, such as qwen3-0.6b}"
shift
config="configs/fuser/gpu/$recipe.yaml"
test -f "$config" || { echo "no $config; recipes: $(ls configs/fuser/gpu | sed 's/\.yaml//' | xargs)" >&2; exit 2; }
out="runs/fuser-$recipe"
for override in "$@"; do
  case "$override" in out=*) out="${override#out=}" ;; esac
done
python -m training.fuser "$config" "$@"
python -m eval.fusion --adapter "$out/adapter" --examples "${EXAMPLES:-data/fusion_test.jsonl}" \
  --out "${REPORT:-reports/fuser-$recipe}"
