#!/usr/bin/env bash
# Evaluation can undo the truncated sampling of training: min-p, stop texts and stop tokens have their own keys under
# eval.
source "$(dirname "$0")/../lib.sh"
sets=(eval.eval_interval=1 "eval.eval_prompt_data={s: prompts.jsonl}")
train --dry-run --set rollout.rollout_min_p=0.9 "${sets[@]}" eval.eval_temperature=1 eval.eval_top_p=1 eval.eval_top_k=-1 eval.eval_min_p=0 ||
  wrong "eval_min_p: $(grep -m1 '^error' out)"
# At min-p 1 only the likeliest token is left, so all samples of a prompt are equal; without it they differ.
evaluate() { rm -rf kept; timeout 60 "$B" eval --hf-checkpoint model --data s=prompts.jsonl --samples kept --set reward.rm_type=random eval.eval_max_response_len=8 \
  eval.n_samples_per_eval_prompt=4 rollout.rollout_min_p=1 "$@" >out 2>&1 || wrong "eval fails: $(tail -3 out)"; grep -o '"response": *"[^"]*"' kept/eval_s.jsonl | sort -u | wc -l; }
as_training=$(evaluate) || exit 1
untruncated=$(evaluate eval.eval_min_p=0) || exit 1
((as_training <= 8 && untruncated > 8)) || wrong "responses that differ: $as_training with min-p 1, $untruncated with eval_min_p 0"
# A stop token of training also ends evaluation responses, unless eval overrides it.
ended() { rm -rf kept; timeout 60 "$B" eval --hf-checkpoint model --data s=prompts.jsonl --samples kept --set reward.rm_type=random eval.eval_max_response_len=8 \
  "rollout.rollout_stop_token_ids=[$(seq -s, 0 319)]" "$@" >out 2>&1 || wrong "eval fails: $(tail -3 out)"; grep -c '"response_length": *1[,}]' kept/eval_s.jsonl; }
[[ $(ended) == 8 ]] || wrong "stop tokens of training do not end evaluation"
[[ $(ended eval.eval_stop_token_ids=[]) -lt 8 ]] || wrong "eval_stop_token_ids [] does not undo them"
