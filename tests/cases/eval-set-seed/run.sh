#!/usr/bin/env bash
# The samples of an evaluation set do not depend on other sets; two sets with the same file have different samples.
source "$(dirname "$0")/../lib.sh"
P=$T/prompts.jsonl
evaluate() { # NAME SETS
  timeout 60 "$B" eval --config run.yaml --set observe.run_dir="$T/$1" eval.eval_max_response_len=8 eval.n_samples_per_eval_prompt=2 eval.eval_prompt_data="$2" >out 2>&1 || wrong "$(tail -3 out)"
}
evaluate alone "{held: $P}"
evaluate behind "{aime: $P, held: $P}"
evaluate between "{aime: $P, held: $P, zebra: $P}"
for run in behind between; do
  cmp -s alone/samples/eval_held_000000.jsonl $run/samples/eval_held_000000.jsonl || wrong "$run: the samples of \"held\" are others"
done
cmp -s between/samples/eval_aime_000000.jsonl behind/samples/eval_aime_000000.jsonl || wrong "the samples of \"aime\" are others"
cmp -s behind/samples/eval_aime_000000.jsonl behind/samples/eval_held_000000.jsonl && wrong "two sets draw the same numbers"
exit 0
