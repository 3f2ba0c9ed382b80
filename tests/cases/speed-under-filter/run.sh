#!/usr/bin/env bash
# perf/tokens_per_gpu_per_sec counts all tokens that the engine generated during the rollout, also in groups that a
# filter drops.
source "$(dirname "$0")/../lib.sh"
last() { values run/metrics.jsonl "$1"; }
for S in rollout.over_sampling_batch_size=8 rollout.num_rollout=1; do
  rm -rf run
  train --set rollout.num_rollout=1 rollout.dynamic_sampling_filter_path=check_reward_nonzero_std rollout.n_samples_per_prompt=3 $S || wrong "$(tail -3 out)"
  awk -v rate="$(last perf/tokens_per_gpu_per_sec)" -v time="$(last perf/rollout_time)" -v made="$(last perf/decode_batch)" -v steps="$(last perf/decode_steps)" \
    -v longest="$(last perf/longest_sample_tokens_per_sec)" \
    'BEGIN { exit !(rate * time - made * steps < 0.5 && made * steps - rate * time < 0.5 && made > 0 && longest * time > 7.5) }' ||
    wrong "$S: $(last perf/tokens_per_gpu_per_sec) a second in $(last perf/rollout_time) s, and $(last perf/decode_steps) steps of $(last perf/decode_batch)"
done
