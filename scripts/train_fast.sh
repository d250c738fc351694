#!/usr/bin/env bash
# The fast relation adapter: two runs, 110,000 pairs, about an hour and a half on 2 cores without bf16 arithmetic.
#
# NLI names a folder with the sets that scripts/train_accurate.sh names. The shipped adapter saw:
#   run 1  f684c45c0a66  48,000 pairs of 4,272 families (builder at 6987a74, --seed 7) and 12,002 of NLI sets
#   run 2  2f524b7b5b54  50,000 more of the families' pairs, none of them in run 1
# This script draws both from the families as they are now; pairs of run 1 may come again in run 2.
: "${NLI:?name the folder of the NLI sets, see above}"
set -euo pipefail
cd "$(dirname "$0")/.."

python -m data.build --out data/derived/fast --seed 7
python -m data.nli "$NLI"/{snli.csv,mnli.csv,med.tsv} --strict "$NLI"/{help.tsv,scone.csv} --each 2000 --words 30 --seed 9 \
  --out data/derived/nli/main.jsonl
python -m data.nli "$NLI/breaking.jsonl" --each 1000 --words 30 --seed 9 --out data/derived/nli/breaking.jsonl
python -m data.mix data/derived/fast/train.jsonl:48000 data/derived/nli/main.jsonl data/derived/nli/breaking.jsonl \
  --out data/derived/fast/mixed.jsonl
python -m training.relation configs/relation/fast.yaml
python -m data.mix data/derived/fast/train.jsonl:50000 --seed 1 --out data/derived/fast/second.jsonl
python -m training.relation configs/relation/fast-second.yaml
python -m eval.relation --adapter runs/relation-fast-second/adapter --pairs data/relation_test_843.jsonl --out reports/fast
