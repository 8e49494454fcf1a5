.DEFAULT_GOAL := help
.PHONY: help setup system screenshots demo conformance sdk-test sdk-test-js sdk-test-go sdk-record hosts test unit golden test-all frameworks check bench trend mutate lock docs clean

PY := .venv/bin/python
# Much of the tests is waiting: for programs that start, servers that answer, browsers that draw.
WORKERS ?= $(shell expr 2 \* $$(getconf _NPROCESSORS_ONLN))

help: ## show what can be made
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: ## build .venv with everything that the targets below need
	@sh scripts/setup.sh

demo: setup ## a gateway, an agent and a verified log; ONCE=1 exits at the end
	@.venv/bin/aegis demo $(if $(ONCE),--once)

system: # programs that the tests need beside Python
	@sh scripts/system.sh bwrap chromium pg_ctlcluster

conformance: setup ## the published conformance suite of MCP, for the tests that run it
	@$(PY) scripts/mcp_conformance.py

sdk-test: sdk-test-js sdk-test-go ## the SDKs of other languages, over the released packages of their frameworks

sdk-test-go: setup
	@sh scripts/go.sh

sdk-test-js: setup # ARGS="tests/conformance.test.mjs" for some of the tests
	@AEGIS=$(abspath .venv/bin/aegis) ARGS="$(ARGS)" sh sdk/js/scripts/test.sh

sdk-record: sdk-test # and keep what the contract came to for the reference page of frameworks
	@$(PY) scripts/record_sdks.py

# A gigabyte of packages, so it is asked for and is no part of `make test`.
hosts: setup ## the coding agents that npm has, below `aegis run` and in front of a scripted model
	@mkdir -p .cache/hosts && cp tests/hosts/package.json .cache/hosts/
	@cd .cache/hosts && npm install --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel=error
	@cd .cache/hosts && npm rebuild --ignore-scripts=false --loglevel=error @anthropic-ai/claude-code opencode-ai # are programs then
	@AEGIS_HOSTS=$(abspath .cache/hosts/node_modules/.bin) $(PY) -m pytest -n 0 tests/hosts $(ARGS)

# One test wants what it needs itself: programs of the system are asked for where every test is run.
test: setup $(if $(ARGS),,system conformance) ## run every test; what is no Python, or has an environment of its own, beside the others
	@$(if $(ARGS),$(PY) -m pytest --beside $(WORKERS) $(ARGS),$(PY) scripts/run_tests.py --workers $(WORKERS))

# Plug-ins cost more than a file of unit tests: only the one that runs coroutines is loaded.
unit: setup ## run FILE=tests/unit/... alone and at once: no plug-ins, no workers, no servers but those it starts
	@PYTEST_DISABLE_PLUGIN_AUTOLOAD=1 $(PY) -m pytest -p pytest_asyncio.plugin $(FILE) $(ARGS)

golden: setup ## compare answers and receipts with the golden files; ARGS=--write writes them
	@$(PY) -m pytest tests/golden $(ARGS)

test-all: test ## and the oldest supported version of every framework
	@$(PY) scripts/run_frameworks.py --only-oldest

frameworks: setup ## run the contract of adapters over the frameworks; ARGS="langchain" for some of them
	@$(PY) scripts/run_frameworks.py $(ARGS)

check: setup ## types, lint, layers, generated files
	@sh scripts/check.sh

docs: setup ## write the generated reference pages, and the site into .cache/site, strictly and offline
	@$(PY) scripts/generate.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet
	@echo "docs: .cache/site/index.html"

screenshots: setup system ## every page of the cockpit, into docs/screenshots
	@$(PY) scripts/screenshots.py

bench: setup ## measure on this machine; writes benchmarks/results and the table in docs
	@$(PY) -m benchmarks $(ARGS)

trend: setup ## what a decision costs beside a bare signed append, against the history; ARGS=--record adds to it
	@$(PY) -m benchmarks.trend $(ARGS)

mutate: setup ## mutation tests of the breach-critical modules (minutes)
	@$(PY) scripts/mutate.py $(ARGS)

fuzz: setup ## look for calls that crash or hang the content guard; SECONDS=60
	@PYTHONPATH=tests:. $(PY) -m fuzz -max_total_time=$(or $(SECONDS),60)

lock: setup ## resolve requirements/dev.lock again
	@sh scripts/lock.sh

clean: ## remove what the targets built
	@rm -rf .venv .cache .demo .mypy_cache .ruff_cache .pytest_cache .hypothesis
