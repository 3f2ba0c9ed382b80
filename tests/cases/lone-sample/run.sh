#!/usr/bin/env bash
# If only one sample of a group has a grade, it cannot be compared: its advantage is 0 with every estimator.
source "$(dirname "$0")/../lib.sh"
for g in 0 1; do
  for i in 0 1 2 3; do
    failed=$([[ $g == 0 && $i != 2 ]] && echo ', "grader_failed": true')
    printf '{"group": %d, "sample": %d, "tokens": [1, 2, 3, 4, 5, 6], "response_length": 3, "reward": %d, "rollout_log_probs": [-1, -1, -1]%s}\n' $g $i $((i == 2)) "$failed"
  done
done >dump.jsonl
for estimator in grpo gspo cispo rloo; do
  rm -rf run
  train --set debug.load_rollout="$T/dump.jsonl" rl.advantage_estimator=$estimator || wrong "$(tail -3 out)"
  mean=$(values run/metrics.jsonl rollout/advantages)
  awk -v x="$mean" 'BEGIN { exit !(x < 1e-6 && x > -1e-6) }' || wrong "$estimator: the mean advantage is $mean"
done
