#!/usr/bin/env bash
# Every token that the engine sampled is compared with training, also in masked responses: truncated, or without a
# grade.
source "$(dirname "$0")/../lib.sh"
compared() { paste <(values run/metrics.jsonl train/compared_tokens) <(values run/metrics.jsonl rollout/num_tokens); }
check() { # NAME SETTINGS
  local name=$1; shift
  rm -rf run
  train --set rollout.num_rollout=2 "$@" || wrong "$name: $(tail -3 out)"
  [[ $(compared | wc -l) == 2 ]] && compared | awk '$1 != $2 || $1 == 0 { exit 1 }' || wrong "$name: compared and generated are $(compared)"
}
check "cut off" rl.overlong_filtering=true
grep -q 'first-step checks: 1/1 (' out || wrong "no token is trained, and of the first step is said: $(grep 'first-step' out)"
check "cut off, gspo, in two parts" rl.overlong_filtering=true rl.advantage_estimator=gspo parallel.tensor_model_parallel_size=2 --thread-ranks=2
awk 'NR == 1 { sub(/"label": "2"/, "\"label\": \"\", \"rm_type\": \"math\"") } { print }' prompts.jsonl >some.jsonl
check "without a grade" data.prompt_data="$T/some.jsonl" data.rollout_shuffle=false
[[ $(values run/metrics.jsonl rollout/grader_failed | head -1) == 2 ]] || wrong "all have a grade"
