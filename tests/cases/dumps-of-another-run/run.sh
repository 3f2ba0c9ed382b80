#!/usr/bin/env bash
# debug.save_rollout, dump_weights and dump_gradients replace no file of another run; a resumed run continues its dumps.
source "$(dirname "$0")/../lib.sh"
D=(--set debug.save_rollout="$T/dumps" checkpoint.save_interval=2)
train "${D[@]}" rollout.num_rollout=2 || wrong "$(tail -n 1 out)"
before=$(cksum dumps/*)
train "${D[@]}" observe.run_dir=other && wrong "another run dumps into the same folder"
grep -q 'holds the dumps of another run' out || wrong "$(tail -n 3 out)"
train --set debug.load_rollout="$T/dumps" debug.save_rollout="$T/dumps" observe.run_dir=other && wrong "dumps are read and written in one folder"
[[ $(cksum dumps/*) == "$before" ]] || wrong "the dumps were changed"
train "${D[@]}" rollout.num_rollout=4 --resume || wrong "the run cannot go on: $(tail -n 3 out)"
[[ $(ls dumps | wc -l) == 4 ]] || wrong "$(ls dumps)"
mkdir w; echo precious >w/weights.safetensors; echo precious >w/gradients.safetensors
for key in weights gradients; do
  train --set debug.dump_$key=w observe.run_dir=third && wrong "dump_$key replaces a file"
  [[ $(<w/$key.safetensors) == precious ]] || wrong "w/$key.safetensors was replaced"
done
[[ ! -e third ]] || wrong "a refused start left its folder"
