#!/usr/bin/env bash
# A relation adapter by a GPU recipe, from the families to a merged model that a server runs:
#   scripts/gpu/relation.sh deberta-v3-base                    on the GPUs of this machine, one process each
#   GPUS=1 scripts/gpu/relation.sh qwen3-4b-qlora epochs=1     on one of them, with overrides
# Variables: GPUS (default: all)  ACCELERATE (default: configs/accelerate/ddp.yaml)  DATA (default: data/derived)
#   PAIRS (tested on; default: data/relation_test_843.jsonl)  REPORT (default: reports/RECIPE)
# Expected memory and time stand at the top of each recipe; they are estimates.
set -euo pipefail
cd "$(dirname "$0")/../.."

recipe="${1:?give a recipe of configs/relation/gpu, such as deberta-v3-base}"
shift
config="configs/relation/gpu/$recipe.yaml"
test -f "$config" || { echo "no $config; recipes: $(ls configs/relation/gpu | sed 's/\.yaml//' | xargs)" >&2; exit 2; }
if [ -z "${GPUS:-}" ] && ! command -v nvidia-smi > /dev/null; then
  echo "no nvidia-smi here to count the GPUs: set GPUS; GPUS=1 runs on a processor too, slowly" >&2
  exit 2
fi
gpus="${GPUS:-$(nvidia-smi --list-gpus | wc -l)}"
data="${DATA:-data/derived}"
out="runs/$recipe"
for override in "$@"; do
  case "$override" in out=*) out="${override#out=}" ;; esac
done

test -f "$data/train.jsonl" || python -m data.build --out "$data"
if [ "$gpus" -gt 1 ]; then
  accelerate launch --config_file "${ACCELERATE:-configs/accelerate/ddp.yaml}" --num_processes "$gpus" \
    -m training.relation "$config" train="$data/train.jsonl" dev="$data/dev.jsonl" "$@"
else
  python -m training.relation "$config" train="$data/train.jsonl" dev="$data/dev.jsonl" "$@"
fi
python -m eval.relation --adapter "$out/adapter" --pairs "${PAIRS:-data/relation_test_843.jsonl}" \
  --out "${REPORT:-reports/$recipe}"
case "$recipe" in
  *-qlora) echo "$out/adapter runs on a 4-bit base: merging it costs accuracy, see training/GPU.md" ;;
  *) python -m training.export "$out/adapter" --format merged --out "$out/merged" ;;
esac
