#!/bin/sh
# Resolves requirements/dev.lock from pyproject.toml and requirements/dev.in, with hashes.
set -eu
cd "$(dirname "$0")/.."
.venv/bin/python -m pip install --quiet --disable-pip-version-check uv
.venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
  --python-version 3.11 --all-extras pyproject.toml requirements/dev.in -o requirements/dev.lock
