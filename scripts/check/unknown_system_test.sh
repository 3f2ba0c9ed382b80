#!/usr/bin/env bash
# Tests that scripts/install_deps.sh exits 3 with the list of requirements if it does not know the system's packages.
set -euo pipefail
cd "$(dirname "$0")/../.."
release=$(mktemp)
trap 'rm -f "$release"' EXIT
printf 'ID=plan9\nVERSION_ID=4\n' >"$release"
status=0
said=$(SLX_OS_RELEASE=$release scripts/install_deps.sh 2>&1) || status=$?
[[ $status -eq 3 && $said == *"plan9 4"* && $said == *"nlohmann-json 3.11"* ]] || { echo "status $status: $said"; exit 1; }
echo "an unknown system gets the list"
