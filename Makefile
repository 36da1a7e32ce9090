# `make serve` and `make test` need nothing but Python 3.11 or newer: each makes .venv and installs what it needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ARGS ?=
NATIVE := CMakeLists.txt $(wildcard src/samovar/kernels/cpu/native/* src/samovar/pool/native/*)
# One thread per process: the suite runs in parallel processes, and threads that wait for each other waste cores.
TEST_ENV := OMP_NUM_THREADS=1

.PHONY: serve test test-fast test-native check format lock clean

serve: $(VENV)/.installed
	$(BIN)/samovar serve $(ARGS)

test: $(VENV)/.installed-dev check
	$(TEST_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

# The torch-free half, without slow tests.
test-fast: $(VENV)/.installed-dev
	$(TEST_ENV) $(BIN)/python -m pytest -n 3 --dist worksteal -m "not torch and not model and not slow" $(ARGS)

# The kernels' plain C++ tests: as they are built for use, then under sanitizers (less optimised: with -O3 these take a
# quarter of an hour to compile). Needs cmake and a compiler, and several minutes for a first build, so `make test`, which
# tests the same kernels through Python, does without.
test-native: test-native-plain test-native-address test-native-thread

test-native-plain: OPTIONS := -DCMAKE_BUILD_TYPE=Release
test-native-address: OPTIONS := -DCMAKE_BUILD_TYPE=Checked -DCMAKE_CXX_FLAGS_CHECKED=-O1 -DSAMOVAR_SANITIZE=address,undefined
test-native-thread: OPTIONS := -DCMAKE_BUILD_TYPE=Checked -DCMAKE_CXX_FLAGS_CHECKED=-O1 -DSAMOVAR_SANITIZE=thread
test-native-%:
	cmake -S . -B build/native-tests/$* -DSAMOVAR_PYTHON=OFF -DSAMOVAR_TESTS=ON $(OPTIONS)
	cmake --build build/native-tests/$* --parallel 2
	ctest --test-dir build/native-tests/$*/src/samovar/kernels/cpu/native --output-on-failure
	ctest --test-dir build/native-tests/$*/src/samovar/pool/native --output-on-failure

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
