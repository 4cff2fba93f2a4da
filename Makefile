# Every command of the project. Paths are relative, so that a clone may lie below a directory with spaces.

PYTHON ?= python3
MINUTES ?= 10
ARGS ?=
BIN := .venv/bin
INSTALLED := .venv/.installed
KAFKA := deploy/kafka/kafka
CORE := schemas/*,workers/logic/*
PIP := --disable-pip-version-check --quiet --progress-bar off

.DEFAULT_GOAL := help
.PHONY: help setup up demo test check format bench torture large mutants kafka lock clean

help: ## show this list
	@echo "Tallystick: make TARGET"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)$$/  \1|\2/p' Makefile | awk -F'|' '{ printf "%-11s %s\n", $$1, $$2 }'

setup: $(INSTALLED) ## make .venv with everything that is needed, from requirements.lock

$(INSTALLED): requirements.lock pyproject.toml
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "setup: Python 3.11 or newer is needed; name one: make setup PYTHON=/path/to/python3.11" >&2; exit 1; }
	@echo "setup: making .venv with $$("$(PYTHON)" --version)"
	@# Debian packs ensurepip apart from Python; with pip at hand the environment can do without it.
	@if "$(PYTHON)" -c 'import ensurepip' 2>/dev/null; then "$(PYTHON)" -m venv .venv; \
	elif "$(PYTHON)" -m pip --python "$(PYTHON)" --version >/dev/null 2>&1; then "$(PYTHON)" -m venv --without-pip .venv; \
	else echo "setup: $(PYTHON) has neither ensurepip nor pip: apt-get install -y python3-venv" >&2; exit 1; fi
	@echo "setup: installing $$(grep -c == requirements.lock) packages from requirements.lock (about 250 MB, a minute)"
	@if [ -x $(BIN)/pip ]; then pip() { $(BIN)/python -m pip "$$@"; }; \
	else pip() { "$(PYTHON)" -m pip --python $(BIN)/python "$$@"; }; fi; \
	pip install $(PIP) --require-hashes -r requirements.lock && \
	echo "setup: installing tallystick itself" && \
	pip install $(PIP) --no-deps --editable .
	@touch $@
	@echo "setup: done"

up: setup ## run broker, PostgreSQL and all workers until Ctrl-C
	$(BIN)/tally up

demo: setup ## show it on one machine: events in, memory and a conflict out
	$(BIN)/tally demo

test: setup ## run the whole suite (ARGS="-k name" narrows it)
	@$(BIN)/python -c 'from tests.support.stack import broker_in_use as b; print("test: on " + b(), flush=True)'
	$(BIN)/python -m pytest $(ARGS)

check: setup ## run the static gates and the fast tests; the pure core must be covered whole
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m pytest tests/unit tests/contract --hypothesis-profile=repeatable --cov --cov-report=
	$(BIN)/coverage report --include='$(CORE)' --skip-covered --show-missing --fail-under=100

format: setup ## format the code and mend what the linter can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: setup ## measure the speed beside the raw limits of Kafka and PostgreSQL
	$(BIN)/tally bench $(ARGS)

torture: setup ## kill workers and brokers at random and check every promise (MINUTES=10)
	$(BIN)/python -m tests.acceptance.torture --minutes $(MINUTES)

large: setup ## count to 300,000 while workers are killed, plan with a million items (some minutes)
	$(BIN)/python -m pytest tests/integration -m large -s $(ARGS)

mutants: setup ## plant bugs in the workers and see the torture find each (some minutes)
	$(BIN)/python -m pytest tests/acceptance/test_torture_of_mutants.py -m mutation

kafka: ## fetch Apache Kafka with Maven; from then on `make test` uses it
	$(KAFKA) install

lock: setup ## write both requirements.lock files anew from pyproject.toml (needs uv)
	uv pip compile pyproject.toml --extra embedded --group dev --universal --generate-hashes --no-emit-index-url --quiet -o requirements.lock
	uv pip compile pyproject.toml --universal --generate-hashes --no-emit-index-url --quiet -o deploy/requirements.lock

clean: ## remove what the targets made: .venv, caches, the fetched Kafka
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage deploy/kafka/target
