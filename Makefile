# make demo and make test do all their own set-up; they need Python 3.11 or later.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test quick mutations fuzz lint types docs check format clean

demo: $(STAMP)
	$(BIN)/privmix demo

test: $(STAMP)
	$(BIN)/pytest -n auto

# All but the slowest tests, in a minute and a half on two cores: what to run after every change.
quick: $(STAMP)
	$(BIN)/pytest -n auto -m "not slow"

# Puts faults into copies of the tree, one at a time; each must be noticed. Takes half an hour.
mutations: $(STAMP)
	$(BIN)/python tests/mutations/run.py

# The long form of tests/fuzz: hours. FUZZ="plan --every 5" takes a part.
fuzz: $(STAMP)
	$(BIN)/python -m tests.fuzz $(FUZZ)

lint: $(STAMP)
	$(BIN)/ruff check src tests benchmarks experiments docs examples
	$(BIN)/ruff format --check src tests benchmarks experiments docs examples

types: $(STAMP)
	$(BIN)/mypy

# The documentation site, in build/site: it opens from disk. A warning is an error.
docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

check: lint types docs test

format: $(STAMP)
	$(BIN)/ruff check --fix src tests benchmarks experiments docs examples
	$(BIN)/ruff format src tests benchmarks experiments docs examples

# Most of what is installed is never imported: the rest is compiled, and kept, when it first is.
$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --upgrade pip
	$(BIN)/python -m pip install --quiet --no-compile --constraint constraints.txt --editable ".[dev]"
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
