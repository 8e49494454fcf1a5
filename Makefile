.DEFAULT_GOAL := help
.PHONY: help setup demo test check bench mutate lock docs clean

PY := .venv/bin/python

help: ## show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## build .venv with everything that the targets below need
	@sh scripts/setup.sh

demo: setup ## a gateway, an agent and a verified log; ONCE=1 exits at the end
	@.venv/bin/aegis demo $(if $(ONCE),--once)

test: setup ## run every test
	@$(PY) -m pytest -n auto $(ARGS)

check: setup ## types, lint, layers, generated files
	@sh scripts/check.sh

docs: setup ## write the generated reference pages
	@$(PY) scripts/generate.py

bench: setup ## measure on this machine; writes benchmarks/results and the table in docs
	@$(PY) -m benchmarks $(ARGS)

mutate: setup ## mutation tests of the breach-critical modules (minutes)
	@$(PY) scripts/mutate.py $(ARGS)

lock: setup ## resolve requirements/dev.lock anew
	@sh scripts/lock.sh

clean: ## remove what the targets built
	@rm -rf .venv .cache .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
