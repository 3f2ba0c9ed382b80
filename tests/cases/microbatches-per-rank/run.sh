#!/usr/bin/env bash
# train/num_microbatches counts per rank, and train/pack_fill is at most 1: neither depends on how a replica is split
# over ranks.
source "$(dirname "$0")/../lib.sh"
train --set rollout.num_rollout=1 rollout.n_samples_per_prompt=4 debug.save_rollout="$T/dump" || wrong "$(tail -3 out)"
# run NAME SETTINGS: prints microbatches and fill.
run() {
  rm -rf run
  train --set debug.load_rollout="$T/dump" "$@" || wrong "$*: $(tail -3 out)"
  echo "$(values run/metrics.jsonl train/num_microbatches) $(values run/train_steps.jsonl train_step/num_microbatches) $(values run/metrics.jsonl train/pack_fill)"
}
P=parallel
static="train.use_dynamic_batch_size=false train.micro_batch_size=2"
[[ $(run $static) == "4 4 " ]] || wrong "8 samples by two: $(run $static)"
[[ $(run $static $P.tensor_model_parallel_size=2 --thread-ranks=2) == "4 4 " ]] || wrong "TP 2: $(run $static $P.tensor_model_parallel_size=2 --thread-ranks=2)"
[[ $(run $static $P.pipeline_model_parallel_size=2 --thread-ranks=2) == "4 4 " ]] || wrong "PP 2"
[[ $(run $static --thread-ranks=2) == "2 2 " ]] || wrong "two replicas"
for S in "$P.context_parallel_size=2 --thread-ranks=2" "train.max_tokens_per_gpu=5" "--thread-ranks=2"; do
  fill=$(run $S | awk '{ print $3 }')
  awk -v x="$fill" 'BEGIN { exit !(x > 0 && x <= 1) }' || wrong "$S: pack_fill is $fill"
done
