#!/usr/bin/env bash
# Files that appear in the export folder during the run stay, and the export goes beside it.
source "$(dirname "$0")/../lib.sh"
arrives() {  # name of what comes
  rm -rf target target-2 run; mkdir target
  if [[ $2 == earlier ]]; then train --set rollout.num_rollout=1 checkpoint.save_hf="$T/target" || wrong "$(tail -n 3 out)"; rm -rf run; fi
  "$B" train --config run.yaml --set rollout.num_rollout=100000 checkpoint.save_hf="$T/target" >out 2>&1 & local pid=$!
  for _ in $(seq 400); do [[ -s run/metrics.jsonl ]] && break; sleep 0.05; done
  mkdir -p "target/$(dirname "$1")"; echo precious >"target/$1"
  kill -USR1 $pid; wait $pid
  train --set rollout.num_rollout=1 checkpoint.save_hf="$T/target" --resume; local rc=$?
  [[ $rc == 2 ]] || wrong "$1: status $rc, not refused at the start"
  [[ $(<"target/$1") == precious ]] || wrong "$1 is gone"
}
arrives sub/thesis.txt empty
arrives model-lora.safetensors earlier
# A file appears just before the end: the start saw an empty folder.
rm -rf target run; mkdir target
(for _ in $(seq 400); do [[ -s run/metrics.jsonl ]] && break; sleep 0.02; done; echo precious >target/thesis.txt) &
train --set rollout.num_rollout=60 checkpoint.save_hf="$T/target"; rc=$?; wait
[[ $rc == 3 ]] || wrong "status $rc: $(tail -n 3 out)"
[[ $(<target/thesis.txt) == precious ]] || wrong "target/thesis.txt is gone"
[[ -e target-2/model.safetensors ]] && grep -q 'target-2' out && grep -q 'thesis.txt' out || wrong "no export beside it: $(tail -n 3 out)"
[[ -e run/checkpoints/step_000060/manifest.json ]] || wrong "the last state is not saved"
