# Two commands do everything, each on a fresh clone: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test test-all check clean

demo: $(VENV)/ready-demo
	$(BIN)/geoco demo --out demo

test: $(VENV)/ready-test check
	$(BIN)/python -m pytest -m "not slow"

test-all: $(VENV)/ready-test check
	$(BIN)/python -m pytest

check: $(VENV)/ready-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# An environment is made anew when what it must hold changes.
$(VENV)/ready-demo: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[video]"
	touch $@

$(VENV)/ready-test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e ".[test]"
	touch $@

clean:
	rm -rf $(VENV) demo
