#!/bin/sh
# Resolves requirements/dev.lock from pyproject.toml and requirements/dev.in, and a lock for each environment of
# frameworks and for the Node that runs the conformance suite of MCP, with hashes. `sh scripts/lock.sh frameworks`
# leaves the first as it is.
set -eu
cd "$(dirname "$0")/.."
[ -x .venv/bin/uv ] || .venv/bin/python -m pip install --quiet --disable-pip-version-check uv

# The extras that live in .venv; those of frameworks are tested in environments of their own.
extras="server judges mcp postgres runs openai anthropic langchain"

lock() {
  out=$1
  shift
  .venv/bin/uv pip compile --quiet --universal --generate-hashes --no-header --no-annotate \
    --python-version 3.11 "$@" -o "$out"
}

if [ "${1:-}" != frameworks ]; then
  # shellcheck disable=SC2046  # one argument a word
  lock requirements/dev.lock $(printf ' --extra %s' $extras) pyproject.toml requirements/dev.in
fi
lock requirements/conformance/node.lock requirements/conformance/node.in
for environment in requirements/frameworks/*.in; do
  lock "${environment%.in}.lock" pyproject.toml "$environment"
done
