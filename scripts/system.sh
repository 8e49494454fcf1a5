#!/bin/sh
# Installs the programs that the tests need beside Python: `sh scripts/system.sh bwrap chromium`.
# Does nothing for a program that is there, and says which one is missing where it cannot install it.
set -eu

package_of() {
  case $1 in
    bwrap) echo bubblewrap ;;
    pg_ctlcluster) echo postgresql ;;
    *) echo "$1" ;;
  esac
}

missing=
for program in "$@"; do
  command -v "$program" >/dev/null 2>&1 || missing="$missing $(package_of "$program")"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null 2>&1; then
  echo "system: install$missing (here only root on Debian can), then try again" >&2
  exit 2
fi
echo "system: installing$missing"
apt-get update -qq
# shellcheck disable=SC2086  # a list of package names
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing >/dev/null
for program in "$@"; do
  command -v "$program" >/dev/null 2>&1 || {
    echo "system: $program is still missing after installing$missing" >&2
    exit 2
  }
done
