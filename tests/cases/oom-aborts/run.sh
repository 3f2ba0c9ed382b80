#!/usr/bin/env bash
# Out of memory during a run gives status 3 and a status.json that says so (or the setting is refused with status 2).
source "$(dirname "$0")/../lib.sh"
(ulimit -v $((700 << 10)); train --set eval.n_samples_per_eval_prompt=16777216 eval.eval_interval=1 "eval.eval_prompt_data={a: $T/prompts.jsonl}"); rc=$?
[[ $rc == 2 || $rc == 3 ]] || wrong "status $rc: $(tail -n 1 out), $(grep state run/status.json)"
[[ ! -e run/status.json ]] || grep -q '"state": "failed"' run/status.json || wrong "$(cat run/status.json)"
