#!/usr/bin/env bash
# Every integer key has an upper bound: a larger value ends the start with status 2 and the key's name, instead of a run
# with wrapped values.
source "$(dirname "$0")/../lib.sh"
refused() { rm -rf run; train --set "$@"; local rc=$?; [[ $rc == 2 ]] || wrong "$*: status $rc"; local key=${!#}; grep -q "${key%%=*}" out || wrong "$*: the key is not named"; }
refused rollout.num_rollout=null rollout.num_epoch=4611686018427387904
refused train.global_batch_size=4 train.num_steps_per_rollout=4611686018427387905
refused train.max_tokens_per_gpu=9223372036854775807
refused train.use_dynamic_batch_size=false train.micro_batch_size=4294967296
sets=(eval.eval_interval=1 "eval.eval_prompt_data={s: prompts.jsonl}")
refused "${sets[@]}" eval.n_samples_per_eval_prompt=4294967296
refused "${sets[@]}" eval.n_samples_per_eval_prompt=16777216
refused "${sets[@]}" eval.eval_max_response_len=9223372036854775807
refused data.seed=9223372036854775807
# The largest accepted values work, or the error names the obstacle.
train --set rollout.num_rollout=1 train.max_tokens_per_gpu=2147483647 checkpoint.keep_last=9007199254740991 train.max_skipped_steps=2147483647 || wrong "largest values: $(tail -3 out)"
rm -rf run; train --set rollout.num_rollout=1 train.use_dynamic_batch_size=false train.micro_batch_size=16777216 || wrong "largest microbatch: $(tail -3 out)"
rm -rf run; train --set rollout.max_total_tokens=2147483647; rc=$?
[[ $rc == 3 ]] && grep -q rollout.max_total_tokens out || [[ $rc == 0 ]] || wrong "max_total_tokens: status $rc, $(tail -3 out)"
