#!/usr/bin/env bash
# A run that goes back to an earlier checkpoint does so when it starts: if killed before its next save, --resume auto
# continues from that checkpoint. model.ckpt_step in the run's own folder goes back only once: a requeued job continues
# from its newest checkpoint.
source "$(dirname "$0")/../lib.sh"
S=(checkpoint.save="$T/ck" checkpoint.save_interval=1 checkpoint.keep_last=0)
goes_on_from() { grep -q "continuing from .*step_00000$1 " out || wrong "$2: $(grep -E 'continuing|error' out)"; }
train --set "${S[@]}" || wrong "$(tail -3 out)"
"$B" train --config run.yaml --set "${S[@]}" rollout.num_rollout=6 rollout.n_samples_per_prompt=60000 train.max_tokens_per_gpu=100000 --resume "$T/ck/step_000002" >out 2>&1 &
pid=$!
for ((i = 0; i < 200; ++i)); do grep -q '"total_steps": 6' run/status.json && break; sleep 0.1; done
kill -KILL $pid
wait $pid 2>/dev/null
train --set "${S[@]}" rollout.num_rollout=5 --resume auto || wrong "$(tail -3 out)"
goes_on_from 2 "killed after it went back"
S+=(model.load="$T/ck" model.ckpt_step=3)
train --set "${S[@]}" rollout.num_rollout=6 || wrong "$(tail -3 out)"
goes_on_from 3 "ckpt_step"
train --set "${S[@]}" rollout.num_rollout=7 || wrong "$(tail -3 out)"
goes_on_from 6 "ckpt_step again"
[[ $(values run/metrics.jsonl step | tr '\n' ' ') == "0 1 2 3 4 5 6 " ]] || wrong "rows of steps $(values run/metrics.jsonl step | tr '\n' ' ')"
train --set "${S[@]}" rollout.num_rollout=7 --resume "$T/ck/step_000003" || wrong "$(tail -3 out)"
goes_on_from 3 "--resume DIR"
