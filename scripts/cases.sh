#!/usr/bin/env bash
# Runs cases: small inputs that once failed, one folder each. A case's run.sh gets the program's path and exits 0 only
# if the program behaves correctly.
#
#   scripts/cases.sh                         all of tests/cases
#   scripts/cases.sh FOLDER ...              every run.sh below these folders
#   --slimexx PATH    the program (default: the last one built)
#   --jobs N          cases that run at a time (default: one per core)
#
# Prints a line per case, and the output of cases that fail. Status 1 if a case fails or there are no cases.
set -euo pipefail
here=$(cd "$(dirname "$0")/.." && pwd)

slimexx=$(ls -t "$here"/build/*/slimexx "$here"/build/*/src/cli/slimexx 2>/dev/null | head -n 1 || true)
jobs=$(nproc)
folders=()
while [[ $# -gt 0 ]]; do
  case $1 in
    --slimexx) slimexx=${2:?--slimexx needs a path}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "scripts/cases.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *) folders+=("$1"); shift ;;
  esac
done
[[ ${#folders[@]} -gt 0 ]] || folders=("$here/tests/cases")
[[ -x $slimexx ]] || { echo "cases: no program at '$slimexx': build it first, or give its path with --slimexx" >&2; exit 2; }
export SLX_CASE_BINARY=$(realpath "$slimexx")
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1

run_one() {
  local output
  if output=$(bash "$1" "$SLX_CASE_BINARY" 2>&1 </dev/null); then
    echo "pass $(dirname "$1")"
  else
    printf 'FAIL %s\n%s\n' "$(dirname "$1")" "$(sed 's/^/     /' <<<"$output")"
  fi
}
export -f run_one

results=$(mktemp)
trap 'rm -f "$results"' EXIT
find "${folders[@]}" -name run.sh -print0 | sort -z | xargs -0 -r -P "$jobs" -I{} bash -c 'run_one "$1"' _ {} | tee "$results"
passed=$(grep -c '^pass ' "$results" || true)
failed=$(grep -c '^FAIL ' "$results" || true)
echo "$passed passed, $failed failed"
[[ $failed -eq 0 && $passed -gt 0 ]]
