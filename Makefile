# setup · check · test · demo · bench: the verbs people and CI use. No step needs anything but Python and the package registries.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
ORACLE := .venv-oracle
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup check format test test-all oracle oracle-check demo clean
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

test: setup
	$(BIN)/pytest -m "not slow"

test-all: setup
	$(BIN)/pytest

# What transformers says about every model, stored in tests/oracle/stored; the check recomputes and compares.
oracle oracle-check: setup $(ORACLE)/ready
	for name in smollm2 gemma3-270m qwen2.5-coder-0.5b; do $(BIN)/trisplit fetch $$name || exit 1; done
	PYTHONPATH=src TQDM_DISABLE=1 nice $(ORACLE)/bin/python -m tests.oracle.compute $(if $(filter %-check,$@),--check)

$(ORACLE)/ready: tests/oracle/requirements.txt
	test -x $(ORACLE)/bin/python || $(PYTHON) -m venv $(ORACLE)
	$(ORACLE)/bin/pip install --quiet --requirement $<
	touch $@

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
