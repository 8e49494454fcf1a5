#!/bin/sh
# Types, lint, formatting, layers, the shape of the code, generated files, and what the wheel holds. Runs all of them, then says which failed.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
failed=""

check() {
  name=$1
  shift
  echo "check: $name"
  "$@" || failed="$failed $name"
}

wheel() {
  out=$(mktemp -d) || return 1
  "$bin/python" -m hatchling build --target wheel --directory "$out" >"$out/log" 2>&1 || {
    cat "$out/log"
    rm -rf "$out"
    return 1
  }
  "$bin/python" scripts/wheel.py "$out"
  status=$?
  rm -rf "$out"
  return "$status"
}

check types "$bin/mypy"
check lint "$bin/ruff" check .
check format "$bin/ruff" format --check .
check layers "$bin/lint-imports" --no-logo
check house "$bin/python" scripts/house.py --check
check generated "$bin/python" scripts/generate.py --check
check site env NO_MKDOCS_2_WARNING=1 "$bin/python" -m mkdocs build --strict --quiet
check wheel wheel
"$bin/python" scripts/import_time.py

if [ -n "$failed" ]; then
  echo "check: FAILED:$failed" >&2
  exit 1
fi
echo "check: all passed"
