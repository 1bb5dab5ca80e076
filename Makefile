# Everything runs in .work/venv, which the first verb sets up; nothing is written outside .work.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo up test check format pins bench

PYTHON ?= python3
PORT ?= 8080
WORKERS ?= 2
BIN := .work/venv/bin
export PYTHONPATH := $(CURDIR)

help:  ## print these verbs
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-14s %s\n", $$1, $$2}'

setup:  ## make .work/venv, pinned by requirements-dev.txt, and .work/endpoint for the tests of S3
	@PYTHON=$(PYTHON) demo/bootstrap.sh

demo: setup java  ## seven days of real flights through Airflow and Spark, compared with a direct computation
	@$(BIN)/python -m demo.run

up: setup java  ## Airflow's UI on 127.0.0.1 (PORT=8080) over the demo's state, until Ctrl-C
	@exec $(BIN)/python -m demo.up --port $(PORT)

test: setup java  ## all tests
	@$(BIN)/python -m pytest -n $(WORKERS) --dist loadfile $(ARGS)

check: setup  ## lint, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

format: setup  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

pins: setup  ## compile requirements*.txt from requirements*.in
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 requirements.in -o requirements.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 requirements-dev.in -o requirements-dev.txt
	$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 requirements-endpoint.in -o requirements-endpoint.txt

bench: setup java  ## measure
	@$(BIN)/python -m bench

.PHONY: java
java:
	@command -v java >/dev/null 2>&1 || [ -x "$${JAVA_HOME:-}/bin/java" ] || \
		{ echo "Spark needs Java 17: install it, or set JAVA_HOME" >&2; exit 1; }
