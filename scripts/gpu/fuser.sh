#!/usr/bin/env bash
# A fuser adapter by a GPU recipe, and its measures on the held-out examples:
#   scripts/gpu/fuser.sh qwen3-0.6b
# Expected memory and time stand at the top of each recipe; they are estimates.
set -euo pipefail
cd "$(dirname "$0")/../.."

recipe="${1:?give a recipe of configs/fuser/gpu, such as qwen3-0.6b}"
shift
config="configs/fuser/gpu/$recipe.yaml"
test -f "$config" || { echo "no $config; recipes: $(ls configs/fuser/gpu | sed 's/\.yaml//' | xargs)" >&2; exit 2; }
python -m training.fuser "$config" "$@"
python -m eval.fusion --adapter "runs/fuser-$recipe/adapter" --examples data/fusion_test.jsonl --out "reports/fuser-$recipe"
