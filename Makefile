# setup · check · test · demo · bench: the verbs people and CI use. They need Python 3.11+ and a package registry.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ORACLE := .venv-oracle
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup check format assets test test-all oracle oracle-check demo clean
setup: $(VENV)/ready

$(VENV)/ready: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

check: setup
	$(BIN)/ruff check src tests examples
	$(BIN)/ruff format --check src tests examples
	$(BIN)/mypy
	$(BIN)/lint-imports

format: setup
	$(BIN)/ruff check --fix src tests examples
	$(BIN)/ruff format src tests examples

# The model and the tokenizer vectors that tests compare with; kept in the user's cache directory.
assets: setup
	for name in smollm2 tokenizer-vectors; do $(BIN)/trisplit fetch $$name || exit 1; done

test: setup assets
	$(BIN)/pytest -m "not slow"

test-all: setup assets oracle-check
	$(BIN)/pytest

demo: setup
	$(BIN)/trisplit fetch smollm2
	$(BIN)/trisplit generate smollm2 "Why is the sky blue?" --chat --stations 4 --topology chain --max-tokens 96 --check

# What transformers says about every model, stored in tests/oracle/stored; the check recomputes and compares.
oracle oracle-check: setup $(ORACLE)/ready
	for name in smollm2 gemma3-270m qwen2.5-coder-0.5b; do $(BIN)/trisplit fetch $$name || exit 1; done
	PYTHONPATH=src TQDM_DISABLE=1 nice $(ORACLE)/bin/python -m tests.oracle.compute $(if $(filter %-check,$@),--check)

$(ORACLE)/ready: tests/oracle/requirements.txt
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/pip install --quiet --requirement $<
	touch $@

# The engines that `trisplit bench decode --peers` measures beside ours; llama.cpp takes some minutes to build.
PEERS := .venv-peers
LLAMA := llama-cpp-python==0.3.36
.PHONY: peers bench
peers: $(PEERS)/ready

$(PEERS)/ready: tests/oracle/requirements.txt
	test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/pip install --quiet --requirement $<
	CMAKE_ARGS=-DGGML_RPC=ON $(PEERS)/bin/pip install --quiet --no-binary llama-cpp-python $(LLAMA)
	touch $@

# Every ruler, on a machine that does nothing else; what they print is kept in benchmarks/ (docs/benchmarks.md).
decode_with := --peers transformers,llama.cpp
memory_with := --dtype f32,int8,int4
define measured
	$(BIN)/trisplit bench $1 $2 $($1_with) --json > benchmarks/$1.part
	mv benchmarks/$1.part benchmarks/$1.json
endef

bench: setup peers
	mkdir -p benchmarks
	$(call measured,decode,smollm2)
	$(call measured,mesh,smollm2)
	$(call measured,dtypes,smollm2)
	$(call measured,memory,smollm2)
	$(call measured,wire)
	$(call measured,failover,smollm2)

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
