# Everything runs in .work/venv, which the first verb sets up; nothing is written outside .work, except dist/ by
# `make wheel`, and PostgreSQL's throw-away files in the system's temporary directory, where its unprivileged user may go.
SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help setup demo story up cluster page pictures quick coverage test test-all matrix test-faults soak simulate mutants check docs format wheel pins bench bench-all rivals scoreboard scoreboard-run

PYTHON ?= python3
PORT ?= 8080
WORKERS ?= 3
BIN := .work/venv/bin
# Hundreds of processes are started here; where nothing may be written, each would compile all it imports.
unexport PYTHONDONTWRITEBYTECODE
# The checkout is installed: no other one shall be imported in its place.
unexport PYTHONPATH

help:  ## print these verbs
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' $(MAKEFILE_LIST) | awk -F@ '{printf "%-14s %s\n", $$1, $$2}'

setup:  ## make .work/venv, pinned by requirements/dev.txt, and .work/endpoint for the tests of S3
	@PYTHON=$(PYTHON) tools/setup.sh

demo: setup java  ## seven days of real flights through Airflow and Spark, compared with a direct computation
	@$(BIN)/python -m demo.run

story: setup java  ## a poisoned day among 30, found later: restore, mend, replay, exact (ARGS="--days 5 --poisoned 3")
	@$(BIN)/python -m demo.poisoned_day $(ARGS)

up: setup java  ## Airflow's UI on 127.0.0.1 (PORT=8080) over the demo's state, until Ctrl-C
	@exec $(BIN)/python -m demo.up --port $(PORT)

cluster: setup java  ## the demo on PostgreSQL, S3 and a Spark cluster, one worker killed; ARGS=--stay leaves it running
	@exec $(BIN)/python -m demo.cluster --port $(PORT) $(ARGS)

page:  ## build the State page again (Node.js); its build is committed
	@plugins/statelib_airflow/page/build.sh .work/page --install

pictures: setup java  ## take the documents' pictures of the State page again: a test leaves them
	@STATELIB_TEST_ALL=1 STATELIB_SCREENSHOTS=.work/screenshots $(BIN)/python -m pytest -q tests/browser/test_tour.py
	@for name in airflow history checkpoint compare storage trigger approval; do \
		cp ".work/screenshots/$$name-1440.png" "docs/pictures/$$name.png"; done
	@cp .work/screenshots/overview-360.png docs/pictures/phone.png
	@cp .work/screenshots/run-1440.png docs/airflow-grid.png

quick: setup  ## unit and architecture tests that start nothing, in under a minute
	@tools/in_memory.sh $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow" tests/unit tests/architecture $(ARGS)

TESTS ?= tests/unit
coverage: setup  ## print how many lines of each room the unit tests execute (TESTS="tests/unit tests/contract": others)
	@mkdir -p .work/coverage
	@tools/in_memory.sh $(BIN)/python -m pytest -q -n $(WORKERS) --dist loadfile -m "not slow" --cov --cov-report= $(TESTS) $(ARGS)
	@$(BIN)/python -m tools.coverage_table

test: setup java  ## all tests
	@tools/in_memory.sh $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: setup java  ## all tests, with every combination of the matrices that make test only samples
	@STATELIB_TEST_ALL=1 $(BIN)/python -m pytest -n $(WORKERS) --dist load $(ARGS)

matrix: setup  ## the wheel with every supported Airflow, PySpark and catalog database; writes docs/support.md (half an hour)
	@$(BIN)/python -m tools.matrix $(ARGS)

FAULTS := .work/faults/figures.jsonl
FAULTY := tests/faults tests/damage tests/hostile tests/model tests/fuzz tests/property/test_against_a_dict.py \
	$(addprefix tests/contract/test_,postgresql_restarts.py rescale_everywhere.py) \
	$(addprefix tests/integration/test_,s3_fault_scripts.py catalog_lost.py wrong_clocks.py gate_rotation.py)
test-faults: setup java  ## faults as often as is promised (long), then goals G1 to G13 beside what was measured
	@mkdir -p $(dir $(FAULTS)) && rm -f $(FAULTS)
	@export STATELIB_TEST_FAULTS=1 STATELIB_FIGURES=$(CURDIR)/$(FAULTS); \
		$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --timeout 3600 $(FAULTY) $(ARGS); failed=$$?; \
		$(BIN)/python -m tests.benchmarks --rows G11 --runs 7 && $(BIN)/python -m tests.support.faults_table $(FAULTS) && exit $$failed

soak: setup  ## kill and stop workers at random instants for long (ARGS="--minutes 60 --seed 1")
	@$(BIN)/python -m tests.faults.soak $(ARGS)

simulate: setup  ## simulated histories of rivals, deaths and lost replies by seed (ARGS="<first seed> <how many>")
	@$(BIN)/python -m tests.faults.test_simulation $(ARGS)

mutants: setup  ## change the protocol's code in many small ways: do the tests notice? (ARGS="--sample 60 --seed 1")
	@$(BIN)/python -m tests.faults.mutation $(ARGS)

check: setup  ## lint, types, layers, spelling
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/codespell

docs: setup  ## write docs/reference from the code
	$(BIN)/python -m tools.reference

format: setup  ## let ruff rewrite the files
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

wheel: setup  ## build the wheel and the source distribution into dist/, the same bytes for the same commit
	@$(BIN)/hatchling build

pins: setup  ## compile requirements.txt and requirements/*.txt from the *.in beside them
	@set -e; for name in requirements requirements/build requirements/dev requirements/endpoint requirements/rivals; do \
		$(BIN)/uv pip compile --quiet --universal --generate-hashes --python-version 3.11 $$name.in -o $$name.txt; done

bench: setup java  ## measure what takes no more than ten minutes (ARGS="--rows P1,P2 --scale 0.1")
	@$(BIN)/python -m tests.benchmarks $(ARGS)

bench-all: setup java  ## measure every row of PERFORMANCE.md beside everything it is compared with
	@$(BIN)/python -m tests.benchmarks --rows all $(ARGS)

scoreboard: setup  ## print the rows P1 to P26 with their goals, what was measured last, and what is reached
	@$(BIN)/python -m tests.benchmarks.scoreboard

scoreboard-run: setup java rivals  ## thirty days by statelib and by other programs, for docs/scoreboard.md (an hour; ARGS="--scale 0.1")
	@$(BIN)/python -m tests.benchmarks.thirty_days $(ARGS)

RIVALS := .work/rivals
rivals: setup  ## make .work/rivals: the programs of the scoreboard that do not go together with the rest
	@cmp -s requirements/rivals.txt $(RIVALS)/installed.txt || { \
		$(PYTHON) -m venv --without-pip $(RIVALS) && \
		$(BIN)/uv pip sync --quiet --compile-bytecode --python $(RIVALS)/bin/python --require-hashes requirements/rivals.txt && \
		cp requirements/rivals.txt $(RIVALS)/installed.txt; } || \
		{ rm -rf $(RIVALS); echo "no .work/rivals: the scoreboard says so in the rows that need it" >&2; }

.PHONY: java
java: setup
	@command -v java >/dev/null 2>&1 || [ -x "$${JAVA_HOME:-}/bin/java" ] || \
		{ echo "Spark needs Java 17: install it, or set JAVA_HOME" >&2; exit 1; }
	@$(BIN)/python -m demo.spark_start
