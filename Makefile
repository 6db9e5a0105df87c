# Each target sets up what it needs in .venv by itself, with any Python from 3.10:  make test PYTHON=python3.13
PYTHON ?= python3
ARGS ?=

VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
MAKEFLAGS += --no-print-directory

.DEFAULT_GOAL := help
.PHONY: help demo test test-all lint bench clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo '  ARGS="…" is handed on, PYTHON=… chooses the interpreter of a new .venv'

demo: $(VENV)/.ready-demo ## two processes work off one table of invoices (ARGS="--url postgresql://…")
	@$(BIN)/python examples/demo.py $(ARGS)

# On all cores (ARGS=-n0: on one, in this process). Compiled modules go into .venv, for the next run.
PYTEST := env -u PYTHONDONTWRITEBYTECODE PYTHONPYCACHEPREFIX=$(CURDIR)/$(VENV)/pycache \
	$(BIN)/python -m pytest -n auto --dist loadgroup

test: $(VENV)/.ready-test ## the tests, on SQLite and PostgreSQL (ARGS="-k lease tests/unit")
	@$(PYTEST) $(ARGS)

test-all: $(VENV)/.ready-test ## all tests: whole products, races and long kills too (ARGS="-m full": those alone)
	@$(PYTEST) --full $(ARGS)

lint: $(VENV)/.ready-lint ## ruff, import-linter and mypy, all strict
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-cache
	$(BIN)/mypy

bench: $(VENV)/.ready-bench ## the benchmarks, beside a raw loop on the same machine (ARGS="-k latency")
	@$(BIN)/python -m pytest benchmarks $(ARGS)

clean: ## remove .venv, caches and build output
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks .coverage .coverage.*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

EXTRAS_demo := postgres
EXTRAS_test := postgres,integrations,brokers,test
EXTRAS_bench := postgres,brokers,test,bench
EXTRAS_lint := postgres,integrations,brokers,test,bench,lint

$(VENV)/.ready-%: setup.cfg pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --editable '.[$(EXTRAS_$*)]'
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(None if sys.version_info >= (3, 10) else "sqlqueue needs Python 3.10 or newer: make PYTHON=…")'
	$(PYTHON) -m venv $(VENV)
