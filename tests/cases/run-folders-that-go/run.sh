#!/usr/bin/env bash
# Folders of a run are removed while it runs: checkpoints/ is made again, or the status is 3 or 4; missing logs/ and tb/
# are reported.
source "$(dirname "$0")/../lib.sh"
"$B" train --config run.yaml --set rollout.num_rollout=1000000 observe.tensorboard=true checkpoint.save_interval=1 >out 2>&1 & pid=$!
for _ in $(seq 400); do [[ -e run/checkpoints/latest ]] && break; sleep 0.05; done
rm -rf run/logs run/tb
for _ in $(seq 200); do grep -q 'logs/rank_000.log was removed' out && grep -q 'no further TensorBoard events' out && break; sleep 0.05; done
grep -q 'logs/rank_000.log was removed' out || wrong "nothing is said of logs/"
grep -q 'no further TensorBoard events' out || wrong "nothing is said of tb/"
[[ -s run/logs/rank_000.log ]] || wrong "the log does not go on"
for _ in $(seq 20); do rm -rf run/checkpoints 2>/dev/null; sleep 0.02; done
kill -USR1 $pid 2>/dev/null; wait $pid; rc=$?
[[ $rc == 130 || $rc == 3 || $rc == 4 ]] || wrong "status $rc: $(tail -n 2 out)"
[[ $rc == 130 ]] || grep -q '"state": "failed"' run/status.json || wrong "$(cat run/status.json)"
[[ $rc != 130 ]] || train --set rollout.num_rollout=1 --resume || wrong "what is left cannot be resumed: $(tail -n 3 out)"
