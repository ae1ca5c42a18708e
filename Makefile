# Everything a developer runs; 'make' lists it. The venv is private: nothing is installed elsewhere.
PYTHON ?= python3
VENV ?= .venv
EXAMPLE := examples/hosts/debian13-8xh100.json

.DEFAULT_GOAL := help
.PHONY: help run test lint format bench provision clean

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 12

run: $(VENV)/run.stamp ## install into a private venv, then print the CDI spec of this host
	@$(VENV)/bin/cdigen generate --output-dir build/specs; code=$$?; \
	if [ $$code -eq 3 ]; then \
	  echo "This host has no GPU to offer; here is what the host in $(EXAMPLE) gives:" >&2; \
	  $(VENV)/bin/cdigen generate --inventory $(EXAMPLE); \
	elif [ $$code -eq 0 ]; then cat build/specs/*.json; else exit $$code; fi

test: $(VENV)/dev.stamp ## run every test that this machine can run
	$(VENV)/bin/python -m pytest

lint: $(VENV)/dev.stamp ## ruff, mypy --strict, import contracts
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports

format: $(VENV)/dev.stamp ## let ruff put the code into its form
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

bench: $(VENV)/run.stamp ## time and memory of a cold 'cdigen generate', as ratios to bare Python
	$(VENV)/bin/python tests/bench/cold_generate.py

provision: ## make the real driver trees and images for the end-to-end tests (root, several minutes)
	tests/e2e/provision

clean: ## remove the venv and what tools left behind
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(VENV)/bin/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "cdigen needs Python 3.11 or newer; name it with PYTHON=" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/run.stamp: pyproject.toml | $(VENV)/bin/pip
	$(VENV)/bin/pip install --quiet --editable .
	@touch $@

$(VENV)/dev.stamp: pyproject.toml $(VENV)/run.stamp
	$(VENV)/bin/pip install --quiet --editable '.[dev]'
	@touch $@
