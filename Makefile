# Every target sets up what it needs in .venv first, and only when something changed.
#   make demo               one incident from fault to recovery, measured live      ARGS="--keep" is handed on
#   make test               all tests but the drills, by three processes            ARGS="-k window" is handed on;
#                           ARGS="-n0 …" keeps them in one, for --pdb
#   make drill              the long tests that break real Ray on purpose, an hour; how each ended goes to docs/drills.md
#   make landing            of these one of each kind: what CI runs
#   make soak               ten thousand steps through all that can go wrong with data, memory and pace
#                           and an hour of training and serving under random faults; FAILSOFT_SOAK_MINUTES=10 for less
#   make lint               what CI checks: format, style, types, layers
#   make package            the wheel and the source archive in dist, the same bytes each time from one commit
#   make format             rewrite the files in the house format
#   make bench NAME=guard   one benchmark, or all of them without NAME
# PYTHON=/path/to/python3.12 chooses the interpreter.

VENV := .venv
STAMP := $(VENV)/.set-up
RUN := $(VENV)/bin
LANDING := cluster_commands documented_alone metrics serving_incident shared_window training_hang training_job torn_writes package

.PHONY: demo test drill landing soak bench package lint format style types layers setup clean help
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

setup: $(STAMP)

$(STAMP): pyproject.toml constraints.txt .ci/setup
	@rm -f $@
	@PYTHON="$(PYTHON)" .ci/setup $(VENV)
	@touch $@

demo: $(STAMP)
	@$(RUN)/failsoft demo $(ARGS)

test: $(STAMP)
	@$(RUN)/python -m pytest -n 3 --dist loadfile -m "not drill and not soak" $(ARGS)

drill: $(STAMP)
	@$(RUN)/python -m pytest -p tests.drills.outcomes -m drill $(ARGS)

landing: $(STAMP)
	@$(RUN)/python -m pytest -m drill $(LANDING:%=tests/drills/test_%.py) $(ARGS)

soak: $(STAMP)
	@$(RUN)/python -m pytest -p tests.drills.outcomes -m soak $(ARGS)

bench: $(STAMP)
	@$(RUN)/python -m tests.benchmarks $(NAME)

package: $(STAMP)
	@.ci/build $(VENV) dist

lint: $(STAMP)
	@$(RUN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(RUN)/ruff check .
	@$(RUN)/mypy
	@$(RUN)/lint-imports --no-logo || { echo "an import points the wrong way; see [tool.importlinter] in pyproject.toml"; exit 1; }

format: $(STAMP)
	@$(RUN)/ruff check --fix --exit-zero --quiet .
	@$(RUN)/ruff format .

style: $(STAMP)
	@$(RUN)/ruff check .

types: $(STAMP)
	@$(RUN)/mypy

layers: $(STAMP)
	@$(RUN)/lint-imports --no-logo

clean:
	rm -rf $(VENV) build dist ./*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
