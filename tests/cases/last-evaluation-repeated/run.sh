#!/usr/bin/env bash
# If a signal cuts off the evaluation after the last rollout, the next --resume makes it, once.
source "$(dirname "$0")/../lib.sh"
cat >>run.yaml <<END
eval: {eval_interval: 100, eval_prompt_data: {h: $T/prompts.jsonl}, n_samples_per_eval_prompt: 3, skip_eval_before_train: true}
checkpoint: {save_interval: 2}
END
"$B" train --config run.yaml --set eval.n_samples_per_eval_prompt=5000 rollout.num_rollout=4 >out 2>&1 & p=$!
for _ in $(seq 2000); do grep -q '"step": 2,' run/metrics.jsonl 2>/dev/null && break; sleep 0.005; done
sleep 0.2; kill -USR1 $p; wait $p; rc=$?
[[ $rc == 130 ]] || wrong "the evaluation was not met: status $rc"
rows=()
for _ in 1 2 3; do train --resume || wrong "$(tail -n 1 out)"; rows+=("$(wc -l <run/metrics.jsonl)"); done
[[ ${rows[*]} == "5 5 5" && $(grep -c eval/h run/metrics.jsonl) == 1 ]] || wrong "rows after each --resume: ${rows[*]}"
grep -q '4 of 4 rollouts are done; raise rollout.num_rollout' out || wrong "nothing is said of a run that is done"
