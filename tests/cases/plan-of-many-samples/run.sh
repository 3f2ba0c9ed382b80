#!/usr/bin/env bash
# A plan for 16.8 million samples, the most that a configuration may have, takes seconds.
source "$(dirname "$0")/../lib.sh"
(ulimit -t 60; "$B" plan --config run.yaml --gpu cpu --gpus 1 --set rollout.rollout_batch_size=1048576 rollout.n_samples_per_prompt=16 >out 2>&1); rc=$?
[[ $rc == 0 || $rc == 2 ]] || wrong "status $rc: $(tail -n 2 out)"
grep -qE '^grid|error:' out || wrong "neither a plan nor an error: $(tail -n 3 out)"
