#!/usr/bin/env bash
# If the grader finds no answer in a label, that is a failure, not a reward of 0. GSM8K's "#### 72" can be read.
source "$(dirname "$0")/../lib.sh"
timeout 60 "$B" grade --rm-type math --input "$CASE/cases.jsonl" --output rewards 2>log || wrong "grade fails"
[ "$(grep -c '"reward":1,' rewards)" = 2 ] || wrong "read: $(cat rewards)"
[ "$(grep -c '"failed":true' rewards)" = 5 ] || wrong "failed: $(cat rewards)"
grep -q 'the grader failed on 5 of 7 rows' log || wrong "no warning: $(cat log)"
