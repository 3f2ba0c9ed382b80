#!/usr/bin/env bash
# step_* folders that no save wrote stay. A new run does not start among them, and a resumed run leaves them alone.
source "$(dirname "$0")/../lib.sh"
S=(--set checkpoint.save="$T/ck" checkpoint.save_interval=1 checkpoint.keep_last=2)
check() { [[ $(cat "ck/$1" 2>/dev/null) == precious ]] || wrong "ck/$1 is gone: $(tail -n 3 out)"; }
for file in model.pt sub/x notes.txt config.json model.safetensors shard-0.safetensors trainer_state.json; do
  rm -rf ck run; mkdir -p "ck/step_000001/$(dirname $file)"; echo precious >"ck/step_000001/$file"
  train "${S[@]}"; rc=$?
  check "step_000001/$file"
  [[ $rc == 2 ]] || wrong "step_000001/$file: status $rc, not refused"
done
# Such folders appear during the run, or a file appears in a checkpoint: they are not pruned.
rm -rf ck run
train "${S[@]}" rollout.num_rollout=2 || wrong "$(tail -n 3 out)"
mkdir -p ck/step_000000 ck/step_000000.old; echo precious | tee ck/step_000000/x ck/step_000000.old/x.bin >ck/step_000001/notes.txt
train "${S[@]}" rollout.num_rollout=6 --resume || wrong "$(tail -n 3 out)"
check step_000000/x; check step_000000.old/x.bin; check step_000001/notes.txt
grep -q 'step_000001 was not removed, because it holds "notes.txt"' out || wrong "nothing is said of notes.txt: $(cat out)"
[[ $(ls ck | tr '\n' ' ') == "latest step_000000 step_000000.old step_000001 step_000005 step_000006 " ]] || wrong "$(ls ck)"
# A folder with the name of a future save.
mkdir ck/step_000008; echo precious >ck/step_000008/x
train "${S[@]}" rollout.num_rollout=8 --resume && wrong "a step in the way is not refused"
check step_000008/x
