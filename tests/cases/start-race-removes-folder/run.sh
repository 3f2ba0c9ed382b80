#!/usr/bin/env bash
# Two runs start at the same time with one new run folder: one trains, and the refused one removes nothing. slow.c makes
# the race windows long.
source "$(dirname "$0")/../lib.sh"
command -v cc >/dev/null || { echo "no cc: not tried"; exit 0; }
cc -shared -fPIC -o slow.so "$CASE/slow.c" -ldl || exit 2
for i in 1 2; do
  (LD_PRELOAD="$T/slow.so" timeout 100 "$B" train --config run.yaml --set checkpoint.save_interval=1 checkpoint.keep_last=0 >"out$i" 2>&1; echo $? >"rc$i") &
  sleep 0.15
done
wait
[[ $(sort rc1 rc2 | tr '\n' ' ') == "0 2 " ]] || wrong "statuses $(cat rc1 rc2 | tr '\n' ' '): $(grep -h -m1 '^error' out1 out2)"
[[ -e run/checkpoints/step_000004/manifest.json ]] || wrong "the checkpoints are gone"
