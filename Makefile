# Two commands do everything, each on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# For the tests of the editor's page; Debian's.
CHROMIUM := { apt-get update -qq && apt-get install -qq -y chromium chromium-driver; } > /dev/null 2>&1

.PHONY: demo serve test test-all check clean

# One thread: what the demo computes gains nothing from more, and loses much on a busy machine.
demo: $(VENV)/ready-demo
	OMP_NUM_THREADS=1 $(BIN)/geoco demo --out demo

# The editor in a browser, with the model that ships.
serve: $(VENV)/ready-demo
	$(BIN)/geoco serve

# A process per core, each with one thread: small tensors gain nothing from more.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist worksteal

test: $(VENV)/ready-test check
	$(PYTEST) -m "not slow"

test-all: $(VENV)/ready-test check
	$(PYTEST)

check: $(VENV)/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# An environment is made anew when what it must hold changes.
$(VENV)/ready-demo: pyproject.toml constraints.txt Makefile
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[video,web]"
	touch $@

$(VENV)/ready-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	command -v chromium > /dev/null || $(CHROMIUM) || echo "no Chromium: the tests of the page are skipped"
	touch $@

clean:
	rm -rf $(VENV) demo
