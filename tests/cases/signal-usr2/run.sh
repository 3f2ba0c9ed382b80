#!/usr/bin/env bash
# Signals that launchers send before an end finish the update in progress, save, and give status 130: USR2 (submitit,
# LSF), USR1, TERM, XCPU, HUP, PWR.
source "$(dirname "$0")/../lib.sh"
for signal in USR2 USR1 TERM XCPU HUP PWR; do
  rm -rf run
  bash -c 'trap - HUP; exec "$@"' sh "$B" train --config run.yaml --set rollout.num_rollout=1000000 checkpoint.save_interval=0 >out 2>&1 & pid=$!
  for _ in $(seq 400); do [[ -s run/metrics.jsonl ]] && break; sleep 0.05; done
  kill -$signal $pid; wait $pid; rc=$?
  [[ $rc == 130 ]] || wrong "$signal: status $rc, $(grep state run/status.json)"
  grep -q '"state": "interrupted"' run/status.json && [[ -e $(echo run/checkpoints/step_*/manifest.json) ]] || wrong "$signal: nothing is saved"
done
