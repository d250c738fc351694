#!/usr/bin/env bash
# The accurate relation adapter: eight runs, each going on from weights of those before, and two averages of weights; about
# seven hours on 2 cores without bf16 arithmetic. Every run sees another draw of pairs.
#
# NLI names a folder with the sets of run 8, as CSV, TSV or JSONL with premise, hypothesis and label: snli.csv (dev and
# test), mnli.csv (dev), med.tsv, help.tsv, scone.csv, breaking.jsonl.
#
# The shipped adapter was trained while the families were being written, so its draws are those of earlier commits:
#   run 1  445b2011c11a  21,000 pairs of   858 families  (builder at ef8026b)
#   run 2  5e6753bcbc75  12,000 pairs of   858 families  (builder at ef8026b)
#   run 3  9e2277c92d03  18,000 pairs of   858 families  (builder at 55bfa0d)
#   run 4  f33f8e9e010e  19,200 pairs of 2,045 families  (builder at c11982f)
#   run 5  e2ba8418a813  19,200 pairs of 3,133 families  (builder at 521072f, three families left out)
#   run 6  20d27f8cc25b  16,000 pairs of the families of batches L, M, N, V and X  (builder at 00125da)
#   run 7  de8414798c80  17,600 pairs of these and of batches W, Y, Z, O and I  (builder at 6987a74)
#   run 8  72d7a4985303  14,000 pairs of 4,272 families (IND 4,200, EQV and CON 3,300, OSN and NSO 1,600 each;
#                        builder at 6987a74) and 9,000 of NLI sets, from the average of runs 5 and 7
# What ships is the average of run 8 and what it started from. This script draws all from the families as they are now.
set -euo pipefail
: "${NLI:?name the folder of the NLI sets, see above}"
cd "$(dirname "$0")/.."

build() { python -m data.build --out "$@"; }

build data/derived
python -m training.relation configs/relation/mpnet.yaml
build data/derived/more --seed 1 --first-person 0.3
python -m training.relation configs/relation/mpnet-more.yaml
build data/derived/third --seed 2 --first-person 0.3
python -m training.relation configs/relation/mpnet-third.yaml
build data/derived/fourth --seed 3
python -m training.relation configs/relation/mpnet-fourth.yaml
build data/derived/fifth --seed 5
python -m training.relation configs/relation/mpnet-fifth.yaml
build data/derived/sixth --seed 6 --only '[LMNVX]'
python -m training.relation configs/relation/mpnet-sixth.yaml
build data/derived/seventh --seed 8 --only '[LMNVXWYZOI]' --eqv 9 --subsumed 3 --con 9 --near 7
python -m training.relation configs/relation/mpnet-seventh.yaml
average() { python -m training.average "$@" --dev data/derived/seventh/dev.jsonl --max-dev-pairs 1600; }
average runs/relation-mpnet-{fifth,seventh}/adapter --out runs/relation-mpnet-average/adapter

build data/derived/all --seed 7
python -m data.nli "$NLI"/{snli.csv,mnli.csv,med.tsv} --strict "$NLI"/{help.tsv,scone.csv} --each 2000 --words 30 --seed 9 \
  --out data/derived/nli/main.jsonl
python -m data.nli "$NLI/breaking.jsonl" --each 1000 --words 30 --seed 9 --out data/derived/nli/breaking.jsonl
python -m data.mix data/derived/all/train.jsonl:14000 data/derived/nli/main.jsonl:8000 data/derived/nli/breaking.jsonl \
  --seed 9 --out data/derived/eighth/train.jsonl
python -m training.relation configs/relation/mpnet-eighth.yaml
# A false relation costs 3 missed ones, not the default 4: at 4 the acceptance of CON rises from 0.68 to 0.86, and the store
# passes over plain changes (a move, in the README's tour); at 3 it demotes one gold fact more of the controlled episodes.
average runs/relation-mpnet-{average,eighth}/adapter --seed 9 --false-merge-cost 3 --out runs/relation-mpnet-accurate/adapter
python -m eval.relation --adapter runs/relation-mpnet-accurate/adapter --pairs data/relation_test_843.jsonl --out reports/accurate
