#!/bin/sh
# Builds .venv from requirements/dev.lock. Does nothing when it already stands for this lock.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || {
  echo "setup: Python 3.11 or newer is needed; set PYTHON to one" >&2
  exit 2
}

stamp="$("$python" -c 'import sys; print(sys.version)') $(cat requirements/dev.lock pyproject.toml | cksum) $(pwd)"
if [ -x .venv/bin/aegis ] && [ "$(cat .venv/.stamp 2>/dev/null)" = "$stamp" ]; then
  exit 0
fi

echo "setup: building .venv (about half a minute)"
if ! "$python" -m venv --clear .venv 2>/dev/null; then
  # Debian ships venv's pip in a package of its own.
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "setup: installing python3-venv"
    apt-get update -qq && apt-get install -qq -y python3-venv >/dev/null
    "$python" -m venv --clear .venv
  else
    echo "setup: this Python cannot make virtual environments; install python3-venv and try again" >&2
    exit 2
  fi
fi
.venv/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
printf '%s' "$stamp" > .venv/.stamp
echo "setup: done"
