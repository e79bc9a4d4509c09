# What .ci/run asks of a release, in parts. `make` alone lists them.
PYTHON ?= .venv/bin/python
export OMP_NUM_THREADS = 1

.PHONY: help environment test nightly lint format types site oldest wheel benchmarks faults release

help: ## this list
	@sed -nE 's/^([a-z]+):.*## (.*)/make \1	\2/p' Makefile

environment: ## .venv, with what the other parts need
	python3 -m venv .venv
	$(PYTHON) -m pip install -e ".[test,dev,docs,plot]"

test: ## every test but those that are asked at night
	$(PYTHON) -m pytest -n auto --dist worksteal

nightly: ## the tests that are asked at night
	$(PYTHON) .ci/nightly

lint: ## ruff, as it is asked of a commit
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

format: ## ruff, changing files
	$(PYTHON) -m ruff check --fix .
	$(PYTHON) -m ruff format .

types: ## mypy
	$(PYTHON) -m mypy --strict dp_accounting_ext

site: ## the pages, to build/site, and their check
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict --site-dir build/site
	$(PYTHON) .ci/check_site.py build/site

oldest: ## quick tests on the oldest Python and dependencies
	.ci/oldest

wheel: ## the source distribution and the wheel, checked in a fresh environment
	.ci/wheel

benchmarks: ## the short benchmarks, which end with status 1 where a goal is missed
	$(PYTHON) benchmarks/run.py --short

faults: ## the weekly search for faults: those that are put in, mutants, the referee
	.ci/find_faults

release: ## all of it, in fresh environments
	.ci/run
