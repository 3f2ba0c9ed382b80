#!/usr/bin/env bash
# rollout/zero_std/frac counts the groups without an advantage, so a length penalty matters, as in advantages. A dynamic
# filter uses only grades.
source "$(dirname "$0")/../lib.sh"
# sample GROUP SAMPLE REWARD LENGTH: prints one sample of a dump.
sample() { printf '{"group": %d, "sample": %d, "tokens": [1%s], "response_length": %d, "reward": %s, "rollout_log_probs": [-1%s]}\n' $1 $2 "$(yes ', 5' | head -$4 | tr -d '\n')" $4 $3 "$(yes ', -1' | head -$(($4 - 1)) | tr -d '\n')"; }
{ sample 0 0 0 2; sample 0 1 0 8    # the same grade, and one is long
  sample 1 0 1 8; sample 1 1 1 8    # both are long
  sample 2 0 1 2; sample 2 1 1 3    # neither is long
  sample 3 0 1 8; sample 3 1 0 2    # equal after a penalty of 1
} >dump.jsonl
train --set debug.load_rollout="$T/dump.jsonl" rl.overlong_buffer_len=4 || wrong "$(tail -3 out)"
[[ $(values run/metrics.jsonl rollout/zero_std/frac) == 0.75 ]] || wrong "zero_std/frac is $(values run/metrics.jsonl rollout/zero_std/frac), and 3 of 4 groups have no advantage"
[[ $(values run/metrics.jsonl rollout/zero_std/count_0.0) == 2 && $(values run/metrics.jsonl rollout/zero_std/count_1.0) == 1 ]] || wrong "$(grep -o '"rollout/zero_std[^,]*' run/metrics.jsonl)"
rm -rf run
sed 's/"label": "[0-9]*"/"label": "123456789"/' prompts.jsonl >hard.jsonl
train --set data.prompt_data="$T/hard.jsonl" reward.rm_type=math rl.overlong_buffer_len=7 rollout.dynamic_sampling_filter_path=check_reward_nonzero_std && wrong "groups of one grade are kept for their lengths"
grep -q 'zero_std_0.0' out || wrong "$(tail -3 out)"
