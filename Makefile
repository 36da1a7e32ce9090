# `make serve` and `make test` need nothing but Python 3.11 or newer: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
NATIVE := CMakeLists.txt $(wildcard src/samovar/kernels/cpu/native/*)
# One thread per process: the suite runs in parallel processes, and threads that wait for each other waste cores.
TEST_ENV := OMP_NUM_THREADS=1

.PHONY: serve test test-fast check format lock clean

serve: $(VENV)/.installed
	$(BIN)/samovar serve $(ARGS)

test: $(VENV)/.installed-dev check
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# The torch-free half, without slow tests.
test-fast: $(VENV)/.installed-dev
	$(TEST_ENV) $(BIN)/python -m pytest -n 3 --dist worksteal -m "not torch and not model and not slow" $(ARGS)

check: $(VENV)/.installed-dev
	$(BIN)/ruff check src tests
	$(BIN)/ruff format --check src tests
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff check --fix src tests
	$(BIN)/ruff format src tests

# Versions that were tested together. Later ones inside pyproject.toml's ranges may work too.
lock:
	$(BIN)/python -m pip freeze --exclude-editable | sed 's/+cpu//' > constraints.txt

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.installed-dev: $(VENV)/bin/python pyproject.toml constraints.txt $(NATIVE)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	touch $@ $(VENV)/.installed

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
