#!/usr/bin/env bash
# Reads the output of `ctest --output-junit FILE` and names every test that did not run, unless a line of its output
# begins with "no GPU", "no NCCL" or "one rank". Status 1 if there is such a test, or if no test ran. Tests with the
# source prefix DISABLED_ (timings to start by hand) are counted separately.
#   scripts/check/skips.sh FILE
set -euo pipefail
exec awk '
  /<testcase / {
    name = $0; sub(/^.*<testcase name="/, "", name); sub(/".*/, "", name)
    ran = /status="(run|fail)"/; disabled += /status="disabled"/; allowed = /status="disabled"/; total++; passed += ran
  }
  { line = $0; sub(/^.*<system-out>/, "", line) }
  line ~ /^(no GPU|no NCCL|one rank)/ { allowed = 1 }
  /<\/testcase>/ && !ran {
    skipped++
    if (!allowed) { print "skips: " name " was not run, and its output gives no reason that is allowed (tests skip for: no GPU, no NCCL, one rank)"; bad++ }
  }
  END {
    printf "skips: %d tests, %d not run, %d of them disabled, %d without an allowed reason\n", total, skipped, disabled, bad
    exit bad > 0 || passed == 0
  }' "${1:?"usage: skips.sh FILE"}"
