#!/usr/bin/env bash
# num_sft_epochs and num_epoch count passes over the data: a resume with another batch size still completes them.
source "$(dirname "$0")/../lib.sh"
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "p%d", "response": "r%d"}\n' $i $i; done >sft.jsonl
S=(rollout.num_rollout=null checkpoint.save_interval=1 checkpoint.keep_last=0 rollout.rollout_max_response_len=3)
# resumed NAME STEP WANT SETTINGS: resumes after step STEP with SETTINGS; expects WANT more rollouts.
resumed() {
  local name=$1 step=$2 want=$3; shift 3
  rm -rf b
  train --set observe.run_dir="$T/b" "${S[@]}" "$@" --resume "$T/a/checkpoints/step_00000$step" || wrong "$name: $(tail -3 out)"
  [[ $(cat b/metrics.jsonl | wc -l) == "$want" ]] || wrong "$name: $(cat b/metrics.jsonl | wc -l) more rollouts, not $want"
}
sft=(train.loss_type=sft data.prompt_data="$T/sft.jsonl" train.num_sft_epochs=2)
train --set observe.run_dir="$T/a" "${S[@]}" "${sft[@]}" train.global_batch_size=2 || wrong "$(tail -3 out)"
[[ $(cat a/metrics.jsonl | wc -l) == 8 ]] || wrong "2 passes over 8 rows are not 8 batches of 2"
resumed "sft, larger batches" 4 2 "${sft[@]}" train.global_batch_size=4
resumed "sft, smaller batches" 4 8 "${sft[@]}" train.global_batch_size=1
resumed "sft, one pass more" 4 8 "${sft[@]}" train.global_batch_size=2 train.num_sft_epochs=3
rm -rf a
rl=(rollout.num_epoch=2)
train --set observe.run_dir="$T/a" "${S[@]}" "${rl[@]}" rollout.rollout_batch_size=2 || wrong "$(tail -3 out)"
resumed "rl, larger batches" 4 2 "${rl[@]}" rollout.rollout_batch_size=4
resumed "rl, smaller batches" 6 4 "${rl[@]}" rollout.rollout_batch_size=1
rm -rf a
rl+=(rollout.dynamic_sampling_filter_path=check_reward_nonzero_std rollout.n_samples_per_prompt=4)
train --set observe.run_dir="$T/a" "${S[@]}" "${rl[@]}" rollout.rollout_batch_size=2 || wrong "$(tail -3 out)"
[[ $(cat a/metrics.jsonl | wc -l) == 8 ]] || wrong "a filter makes 2 passes shorter"
resumed "filter, larger batches" 4 2 "${rl[@]}" rollout.rollout_batch_size=4
resumed "filter, the same" 4 4 "${rl[@]}" rollout.rollout_batch_size=2
