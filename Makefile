# Everything runs in .venv, which is made on first use. Needs Python 3.11 or later and make.
# PYTHON=... chooses the interpreter that the environment is made with.

PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
VENV := .venv
BIN := $(VENV)/bin
RUN := $(BIN)/python

# Spark's workers run in the same environment as the driver.
export PYSPARK_PYTHON := $(abspath $(RUN))

# Processes that tests start, Spark's workers for one, import what others have compiled.
export PYTHONDONTWRITEBYTECODE :=

# Tests run in this many processes, a file at a time; they often wait for Spark to start.
WORKERS ?= 3
PYTEST := $(RUN) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Arguments passed on: make test ARGS="-k wire", make quickstart ARGS="--events 1000"
ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help quickstart test test-all test-versions nightly lint package docs bench figures clean

help:
	@echo "make quickstart  set up and run the stock quotes example on a local Spark;"
	@echo "                 ARGS=--three-brokers runs it with three brokers"
	@echo "make test        run the tests"
	@echo "make test-all    run all tests, including the slow ones"
	@echo "make test-versions   run the tests on every Python found, and with the oldest dependencies"
	@echo "make nightly     all tests, and no step slower than it was, measured by its floor"
	@echo "make lint        ruff, mypy --strict and the import contracts"
	@echo "make package     build what is released in dist/: sdist, wheel, bill of materials, checksums, notes"
	@echo "make docs        build the documentation and run its examples"
	@echo "make bench       run the benchmarks"
	@echo "make figures     run the benchmarks, and write their figures for README and the pages of docs"
	@echo "make clean       remove everything that the other targets made, except .venv"
	@echo "ARGS=... is passed on to the example, pytest or the benchmarks"

$(RUN):
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or later found; set PYTHON=..." >&2; exit 1; }
	@echo "==> Making $(VENV) with $(PYTHON)"
	@$(PYTHON) -m venv $(VENV) || { echo "$(PYTHON) cannot make virtual environments;" \
		"on Debian and Ubuntu install python3-venv" >&2; rm -rf $(VENV); exit 1; }

# One stamp for each set of extras: a change of pyproject.toml or of the version installs again.
$(VENV)/.installed-%: pyproject.toml ccbps/__init__.py | $(RUN)
	@echo "==> Installing ccbps[$*] into $(VENV)"
	@$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

quickstart: $(VENV)/.installed-examples
	@echo "==> Running examples/stock_quotes.py"
	@JAVA_HOME="$$($(RUN) tools/java_home.py)" && export JAVA_HOME && \
		$(RUN) examples/stock_quotes.py $(ARGS)

test: $(VENV)/.installed-test
	@echo "==> Running the tests"
	@JAVA_HOME="$$($(RUN) tools/java_home.py)" && export JAVA_HOME && \
		$(PYTEST) $(ARGS)

test-all: $(VENV)/.installed-test
	@echo "==> Running all tests"
	@JAVA_HOME="$$($(RUN) tools/java_home.py)" && export JAVA_HOME && \
		$(PYTEST) -m "" $(ARGS)

# make test-versions ARGS="--only oldest 3.13 -- -m ''"
test-versions: $(RUN)
	@$(RUN) tools/test_versions.py $(ARGS)

# For an idle machine at night: ratios to floors of the same run, so that any machine will do.
nightly: test-all
	@echo "==> Comparing ratios to floors with docs/figures.json"
	@$(RUN) benchmarks/bench_floors.py --check

lint: $(VENV)/.installed-dev
	@echo "==> ruff check"
	@$(RUN) -m ruff check .
	@echo "==> ruff format --check"
	@$(RUN) -m ruff format --check .
	@echo "==> mypy --strict ccbps"
	@$(RUN) -m mypy --strict ccbps
	@echo "==> lint-imports"
	@$(BIN)/lint-imports

# The wheel is built from the sdist, so a file that the sdist lacks is missed here. Both are built
# twice, and must be equal.
package: $(VENV)/.installed-dev
	@echo "==> Building the sdist and the wheel twice, checking both, and listing what goes with them"
	@$(RUN) tools/release.py $(ARGS)

docs: $(VENV)/.installed-dev
	@echo "==> Building the documentation"
	@$(RUN) -m sphinx -E -W --keep-going -q -b html \
		-d docs/_build/doctrees docs docs/_build/html
	@echo "==> Running the examples in the documentation"
	@$(RUN) -m sphinx -W --keep-going -q -b doctest \
		-d docs/_build/doctrees docs docs/_build/doctest
	@echo "==> Open docs/_build/html/index.html"

bench: $(VENV)/.installed-bench
	@echo "==> Running the benchmarks"
	@JAVA_HOME="$$($(RUN) tools/java_home.py)" && export JAVA_HOME && \
		for file in benchmarks/bench_*.py; do \
			echo "==> $$file"; $(RUN) $$file $(ARGS) || exit 1; done

# make figures ARGS="--only bench_formula"
figures: $(VENV)/.installed-bench
	@echo "==> Running the benchmarks for docs/figures.json"
	@JAVA_HOME="$$($(RUN) tools/java_home.py)" && export JAVA_HOME && \
		$(RUN) benchmarks/figures.py $(ARGS)

clean:
	@echo "==> Removing build products and caches"
	@rm -rf build dist docs/_build docs/leakage.md docs/attack_gallery.md docs/images/*.svg output spark-warehouse metastore_db derby.log
	@rm -rf .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -not -path "./.venv*/*" -prune -exec rm -rf {} +
