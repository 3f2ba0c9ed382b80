#!/usr/bin/env bash
# Installs what is missing, builds, and runs every test that needs no GPU.
#
#   scripts/test.sh                     everything
#   scripts/test.sh REGEX               tests whose name matches, e.g. 'text\..*Utf8'
#   scripts/test.sh -L LABEL            tests of one label: unit, e2e, fuzz, check, ...
#   scripts/test.sh -E REGEX            all tests except those whose name matches
#   scripts/test.sh --preset asan ...   with another preset of CMakePresets.json (default: cpu)
#
# SLX_JOBS sets how many compilations and tests run at a time (default: one compilation per core, and one test more).
set -euo pipefail
cd "$(dirname "$0")/.."

preset=cpu
select=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --preset) preset=${2:?--preset needs a name}; shift 2 ;;
    -L) select+=(-L "^${2:?-L needs a label}\$"); shift 2 ;;
    -E) select+=(-E "${2:?-E needs a regular expression}"); shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "scripts/test.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) select+=(-R "$1"); shift ;;
  esac
done
jobs=${SLX_JOBS:-$(nproc)}
test_jobs=${SLX_JOBS:-$(($(nproc) + 1))}  # many tests wait: for time limits, or for ranks that are stopped

announce() { printf '\n== %s (%d s)\n' "$1" "$SECONDS"; }

announce "packages"
scripts/install_deps.sh
announce "configure: preset $preset"
cmake --preset "$preset"
announce "build with $jobs jobs"
cmake --build --preset "$preset" -j "$jobs"
# CTest also runs scripts/check.sh, as check.tree. CTest's summary comes last, for people and for CI.
announce "test"
results=$PWD/build/$preset/tests.xml
status=0
ctest --test-dir "build/$preset" -j "$test_jobs" --output-on-failure --no-tests=error \
  --timeout 600 --output-junit "$results" "${select[@]}" || status=$?
# In CI everything is installed: a test that does not run is a fault.
if [[ ${CI:-} == true ]]; then
  skips=$(scripts/check/skips.sh "$results") || { echo "$skips"; status=1; }
fi
exit "$status"
