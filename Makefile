# setup · check · test · demo · bench: the verbs people and CI use. No step needs anything but Python and the package registries.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: setup check format test test-all demo clean
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

clean:
	rm -rf $(VENV) .venv-* build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
