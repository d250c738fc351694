# make run            the main job: install, train, evaluate, fill a store, print one page (QUICK=1: a smoke run)
# make install        all of the below: training, evaluation, tests
# make test|lint      what .ci/run runs
# make bench          speed of the write path and of search on this machine
# make docs           API reference from the docstrings, under build/docs
# Variables: VENV=.venv  PYTHON=python3  CPU=1 (torch wheel without CUDA)  TORCH=torch==2.13.0  OUT=reports/run  RUN=runs/run

VENV   ?= .venv
PYTHON ?= python3
TORCH  ?= torch==2.13.0
OUT    ?= reports/run
RUN    ?= runs/run
CONFIG ?= configs/relation/$(if $(QUICK),minilm,cpu).yaml
PY     := $(VENV)/bin/python
FOR_RUN := $(VENV)/.installed-run
FOR_ALL := $(VENV)/.installed

# On Linux the default torch wheel carries CUDA (several GB); CPU=1 takes the small one.
TORCH_FLAGS := $(if $(CPU),--extra-index-url https://download.pytorch.org/whl/cpu,)
QUICK_TRAIN := $(if $(QUICK),epochs=1 max_train_pairs=800 max_dev_pairs=200 eval_pairs=100 swap_margin=0,)

, := ,

# What programs use; the adapters of LangGraph and LlamaIndex need their libraries to be read at all.
API := roam $(addprefix roam.,memory async_memory records relations interfaces events errors policy listing timeline \
       reviewing replaying verification managers adapters bases embedders fusion server server.app server.settings \
       server.keys server.passes integrations.mem0 integrations.mem0_import)

.DEFAULT_GOAL := help
.PHONY: help install run test lint format bench docs clean

help:
	@sed -n '/^#/!q;s/^# //p' Makefile

# $(call extras,LIST) installs the project with these extras; byte-compiling what is seldom imported would take minutes.
define extras
	test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PY) -c "import torch" 2>/dev/null || $(PY) -m pip install --no-compile $(TORCH_FLAGS) "$(TORCH)"
	$(PY) -m pip install --no-compile -c constraints.txt -e ".[$(1)]"
	touch $@
endef

$(FOR_RUN): pyproject.toml constraints.txt
	$(call extras,train$(,)eval)

$(FOR_ALL): pyproject.toml constraints.txt
	$(call extras,train$(,)eval$(,)dev)
	touch $(FOR_RUN)

install: $(FOR_ALL)

run: $(FOR_RUN)
	$(PY) -m data.build $(if $(QUICK),--no-neighbours,)
	$(PY) -m training.relation $(CONFIG) out=$(RUN) $(QUICK_TRAIN)
	$(PY) -m eval.relation --adapter $(RUN)/adapter --pairs data/relation_test_843.jsonl --out $(OUT)/relation
	$(PY) -m eval.demo --adapter $(RUN)/adapter --report $(OUT)/relation --out $(OUT)/demo

test: install
	$(PY) -m pytest -n auto --maxprocesses 8 --dist loadfile

lint: install
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

format: install
	$(PY) -m ruff check --fix .
	$(PY) -m ruff format .

bench: $(FOR_RUN)
	$(PY) scripts/bench.py

docs: install
	$(PY) -m pip install --quiet "pdoc>=16,<17"
	$(PY) -m pdoc --output-directory build/docs $(API)

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache
