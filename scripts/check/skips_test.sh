#!/usr/bin/env bash
# Tests with output of the installed CTest that scripts/check/skips.sh accepts the allowed reasons and no others.
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/skips.sh
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
cd "$tree"

# expect STATUS REASON: one test passes and one skips for REASON.
expect() {
  cat >CTestTestfile.cmake <<EOF
add_test(passes true)
add_test(skips printf "main.cpp:1: Skipped\\n$2\\n[  SKIPPED ] A.b (0 ms)\\n")
set_tests_properties(skips PROPERTIES SKIP_REGULAR_EXPRESSION "\\\\[  SKIPPED \\\\]")
EOF
  ctest --output-junit "$tree/tests.xml" >/dev/null
  local status=0
  "$check" tests.xml >said || status=$?
  if [[ $status -ne $1 ]]; then
    printf '%s: wanted status %d, got %d: %s\n' "$2" "$1" "$status" "$(cat said)"
    exit 1
  fi
}
expect 0 'no GPU'
expect 0 'no NCCL'
expect 0 'one rank: built without MPI'
expect 1 'no data'
expect 1 'there is no GPU data'
printf 'add_test(passes true)\nadd_test(timing true)\nset_tests_properties(timing PROPERTIES DISABLED ON)\n' >CTestTestfile.cmake
ctest --output-junit "$tree/tests.xml" >/dev/null
"$check" tests.xml >/dev/null || { echo "skips.sh reported a disabled test"; exit 1; }
echo 'add_test(skips no_such_program)' >CTestTestfile.cmake
ctest --output-junit "$tree/tests.xml" >/dev/null 2>&1 || true
! "$check" tests.xml >/dev/null || { echo "skips.sh accepted a test whose program is missing"; exit 1; }
echo "only the allowed reasons pass"
