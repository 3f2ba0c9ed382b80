#!/usr/bin/env bash
# A signal cuts off generation: a run in a rollout of minutes ends within seconds with its state saved, and resumes to
# the same bytes.
source "$(dirname "$0")/../lib.sh"
S=(checkpoint.save_interval=1 checkpoint.keep_last=0 rollout.num_rollout=3)
train --set observe.run_dir="$T/whole" "${S[@]}" || wrong "$(tail -3 out)"
train --set observe.run_dir="$T/cut" "${S[@]}" rollout.num_rollout=1 || wrong "$(tail -3 out)"
"$B" train --config run.yaml --set observe.run_dir="$T/cut" "${S[@]}" rollout.n_samples_per_prompt=60000 train.max_tokens_per_gpu=100000 --resume >out 2>&1 &
pid=$!
for ((i = 0; i < 200; ++i)); do grep -q '"total_steps": 3' cut/status.json && break; sleep 0.1; done
sleep 0.5
kill -TERM $pid
start=$SECONDS
wait $pid
status=$?
[[ $status == 130 ]] || wrong "status $status: $(tail -3 out)"
((SECONDS - start < 20)) || wrong "it takes $((SECONDS - start)) s to stop"
grep -q 'rollout 1 was interrupted by a signal' out || wrong "$(tail -5 out)"
[[ $(cat cut/metrics.jsonl | wc -l) == 1 ]] || wrong "a rollout that was cut off has a row"
train --set observe.run_dir="$T/cut" "${S[@]}" --resume || wrong "$(tail -3 out)"
for n in 2 3; do diff -rq whole/checkpoints/step_00000$n cut/checkpoints/step_00000$n || wrong "step $n differs"; done
