#!/usr/bin/env bash
# A key that is set but has no effect is refused, or only listed if the key that turns it off overrides it. Explicit
# default values are harmless.
source "$(dirname "$0")/../lib.sh"
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%s", "response": "%s"}\n' "$(printf "%$((10 * i))s" | tr ' ' p)" "$(printf "%${i}s" | tr ' ' r)"; done >sft.jsonl
sft=(train.loss_type=sft data.prompt_data="$T/sft.jsonl" train.global_batch_size=4 rollout.num_rollout=1)
# The file's keys for rollouts are overridden by --set: they are listed, and the run starts.
train --dry-run --set "${sft[@]}" || wrong "sft on top of a file with rollouts: $(tail -3 out)"
grep -q 'rollout.n_samples_per_prompt.* no effect: train.loss_type is sft' out || wrong "the file's keys are not named"
refused() { train --dry-run --set "$@" && wrong "$* is accepted"; local key=${!#}; grep -qF "${key%%=*}" out || wrong "$*: the key is not named"; }
while read -r settings; do [[ -z $settings ]] || refused "${sft[@]}" $settings; done <"$CASE/sft.txt"
while read -r settings; do [[ -z $settings ]] || refused $settings; done <"$CASE/rl.txt"
train --dry-run --set $(tr '\n' ' ' <"$CASE/defaults.txt") || wrong "defaults that are written out: $(tail -3 out)"
grep -q 'no effect' out && wrong "defaults are named: $(grep 'no effect' out)"
# The length limit of supervised fine-tuning drops examples and counts them.
train --set "${sft[@]}" rollout.rollout_max_prompt_len=50 || wrong "the length limit: $(tail -3 out)"
grep -q 'dropped 4 of 8 examples' out || wrong "no count of what is dropped: $(grep -m1 dropped out)"
exit 0
