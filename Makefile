# Everything that a person types. The environment is made on first use and kept in .venv.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
PROFILE ?= default
SCENARIO ?=
comma := ,
SNAKEMAKE_ARGS ?=
TESTS ?= tests src

# The first Python that is new enough; PYTHON=/path/to/python overrides.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	command -v $$p >/dev/null 2>&1 && $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 \
	&& { echo $$p; break; }; done)

.PHONY: help
help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 18
	@echo '  make plan SCENARIO=a,b plans only these; PROFILE=slurm plans on a cluster; SNAKEMAKE_ARGS="-n" shows what would run'

.PHONY: plan
plan: .venv/warm ## plan every scenario of data/scenarios: results/fleet.duckdb and reports/index.html
	@$(PY) -m snakemake --quiet host $(if $(SNAKEMAKE_ARGS),,progress rules) $(if $(SCENARIO),--config scenario='$(SCENARIO)') \
		--workflow-profile workflow/profiles/$(PROFILE) $(SNAKEMAKE_ARGS)
	@test -n '$(SNAKEMAKE_ARGS)' || { $(PY) -m fleetplan decisions $(subst $(comma), ,$(SCENARIO)); echo 'reports: reports/index.html'; }

.PHONY: test
test: .venv/warm ## run the tests (TESTS=tests/unit for some of them)
	@$(PY) -m pytest $(TESTS)

.PHONY: check
check: .venv/ready ## lint, formats, types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m snakefmt --check Snakefile workflow
	$(PY) -m mypy

.PHONY: bench
bench: .venv/warm ## run the benchmarks
	@$(PY) -m pytest tests/bench --benchmark-only

.PHONY: schema
schema: .venv/ready ## write schemas/ and docs/tables.md anew
	$(PY) -m fleetplan schema
	$(PY) -m fleetplan sql --tables --format markdown > docs/tables.md.new && mv docs/tables.md.new docs/tables.md

.PHONY: lock
lock: .venv/ready ## resolve the dependencies of pyproject.toml anew into requirements.lock
	@$(PY) -m uv --version >/dev/null 2>&1 || $(PY) -m pip install --quiet --disable-pip-version-check uv
	$(PY) -m uv pip compile --generate-hashes --universal --no-header --python-version 3.11 --extra dev pyproject.toml -o requirements.lock

.PHONY: clean
clean: ## delete results and caches; reports and .venv stay
	rm -rf results .snakemake .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks build dist

# The locked dependencies, then the project itself; each again only when its file changed.
.venv/locked: requirements.lock
	@test -n '$(PYTHON)' || { echo 'fleetplan needs Python 3.11 or newer with venv: install python3.11 (and python3.11-venv), or name one: make PYTHON=/path/to/python' >&2; exit 1; }
	@echo 'installing the locked dependencies into .venv: a minute or two'
	test -x $(PY) || $(PYTHON) -m venv .venv
	$(PY) -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@touch $@

.venv/ready: .venv/locked pyproject.toml
	$(PY) -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

# The engine's kernels, compiled once: parallel jobs would each compile them.
.venv/warm: .venv/ready $(wildcard src/fleetplan/engine/*.py)
	@echo 'compiling the simulator, once: one to three minutes'
	$(PY) -m fleetplan.engine.warm
	@touch $@
