#!/usr/bin/env bash
# eval evaluates the named checkpoint, prints which, gives the same samples as its export, and does not change the run's
# samples.
source "$(dirname "$0")/../lib.sh"
train --set checkpoint.save_interval=1 checkpoint.save_hf=exported rollout.num_rollout=2 observe.samples_interval=1 || wrong "train fails: $(tail -3 out)"
before=$(cat run/samples/* | cksum)
evaluate() { rm -rf "$1"; timeout 60 "$B" eval --samples "$1" --data s=prompts.jsonl "${@:2}" --set reward.rm_type=random eval.eval_max_response_len=8 >"$1.out" 2>&1; }
evaluate base --hf-checkpoint model && evaluate export --hf-checkpoint exported || wrong "eval of a folder fails: $(tail -3 base.out)"
cmp -s base/eval_s.jsonl export/eval_s.jsonl && wrong "training changed nothing"
for load in run run/checkpoints run/checkpoints/step_000002; do
  evaluate loaded --load $load || wrong "eval --load $load fails: $(tail -3 loaded.out)"
  head -1 loaded.out | grep -q step_000002 || wrong "--load $load: the first line is $(head -1 loaded.out)"
  cmp -s loaded/eval_s.jsonl export/eval_s.jsonl || wrong "--load $load: other samples than its export"
done
evaluate first --load run/checkpoints/step_000001 && ! cmp -s first/eval_s.jsonl export/eval_s.jsonl || wrong "step 1 is evaluated as step 2"
timeout 60 "$B" eval --config run.yaml --data s=prompts.jsonl --set model.load=run data.seed=42 reward.rm_type=random checkpoint.save_hf=model >out 2>&1 || wrong "eval --config: $(tail -3 out)"
head -1 out | grep -q step_000002 || wrong "model.load is passed over: $(head -1 out)"
cmp -s run/evaluations/001/eval_s.jsonl export/eval_s.jsonl || wrong "samples of the configuration's run folder: $(tail -1 out)"
[[ $(cat run/samples/* | cksum) == "$before" ]] || wrong "the run's samples have changed"
for load in nowhere exported prompts.jsonl; do evaluate none --load $load && wrong "--load $load is accepted"; done
timeout 60 "$B" eval --load run --samples run/samples --data s=prompts.jsonl --set reward.rm_type=random >out 2>&1 && wrong "samples may go over the run's"
[[ $(cat run/samples/* | cksum) == "$before" ]] || wrong "the run's samples have changed"
exit 0
