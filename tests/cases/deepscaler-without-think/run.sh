#!/usr/bin/env bash
# No response has </think>, so deepscaler gives 0 to all: one warning and status.json say so.
source "$(dirname "$0")/../lib.sh"
train --set reward.rm_type=deepscaler rollout.num_rollout=3 checkpoint.save_interval=0 || wrong "the run ends: $(tail -5 out)"
[ "$(grep -c 'the grader found no answer in 4 of 4 responses: no </think>' out)" = 1 ] || wrong "$(grep -c '</think>' out) warnings: $(cat out)"
grep -q '"not_learning": ".*no answer in 4 of 4 responses' run/status.json || wrong "status.json: $(cat run/status.json)"
