#!/usr/bin/env bash
# The shipped relation adapter from scratch: about two hours on 2 cores without bf16 arithmetic.
set -euo pipefail
cd "$(dirname "$0")/.."
python -m data.build
python -m training.relation configs/relation/mpnet.yaml
python -m data.build --seed 1 --first-person 0.3 --out data/derived/more
python -m training.relation configs/relation/mpnet-more.yaml
python -m eval.relation --adapter runs/relation-mpnet-more/adapter --pairs data/relation_test_843.jsonl --out reports/accurate
