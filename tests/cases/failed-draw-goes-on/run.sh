#!/usr/bin/env bash
# With a dynamic filter, a small draw without any grade is dropped like other groups; only many dropped groups in a row
# end the run.
source "$(dirname "$0")/../lib.sh"
awk 'NR == 3 || NR == 4 { sub(/"label": "[0-9]*"/, "\"label\": \"\", \"rm_type\": \"math\"") } { print }' prompts.jsonl >some.jsonl
S=(data.rollout_shuffle=false rollout.num_rollout=2 rollout.rollout_max_response_len=4 rollout.dynamic_sampling_filter_path=check_reward_nonzero_std)
drops=0
for seed in 1 2 3 4 5 6; do
  rm -rf run
  train --set data.prompt_data="$T/some.jsonl" data.seed=$seed "${S[@]}" || wrong "seed $seed: $(tail -3 out)"
  drops=$((drops + $(grep -c 'the grader failed on 4 of 4' out)))
done
[[ $drops -gt 0 ]] || wrong "no draw had no grade: nothing was tried"
for i in 1 2 3 4 5 6 7 8 9; do sed 's/"label": "[0-9]*"/"label": ""/' prompts.jsonl; done >none.jsonl
head -1 prompts.jsonl >>none.jsonl  # one readable label: a start refuses data without any
rm -rf run
train --set data.prompt_data="$T/none.jsonl" reward.rm_type=math "${S[@]}" && wrong "the run goes on though no prompt that is drawn has a grade"
grep -q 'the last 64 groups were all dropped (64 grader_failed' out || wrong "$(tail -3 out)"
