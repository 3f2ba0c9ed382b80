#!/usr/bin/env bash
# After --resume, a failure in the first rollout keeps the checkpoint that the run started from intact, and writes
# nothing.
source "$(dirname "$0")/../lib.sh"
S=(--set checkpoint.save_interval=1 checkpoint.keep_last=1)
train "${S[@]}" rollout.num_rollout=2 || wrong "the first run fails: $(tail -n 1 out)"
before=$(cd run/checkpoints/step_000002 && stat -c '%n %i %Y %s' ./*)
# An unreachable reward service ends the first rollout; files may not exceed 50 kB, as on a full disk.
dead=(reward.rm_type=remote reward.rm_url=http://127.0.0.1:9/x reward.rm_retries=1)
for limit in 50 unlimited; do
  (trap '' XFSZ; ulimit -f "$limit"; train "${S[@]}" rollout.num_rollout=4 "${dead[@]}" --resume) && wrong "a run without rewards ended well"
  [[ $(cd run/checkpoints/step_000002 && stat -c '%n %i %Y %s' ./*) == "$before" ]] || wrong "limit $limit: the checkpoint was touched"
  [[ $(ls run/checkpoints | tr '\n' ' ') == "latest step_000002 " ]] || wrong "limit $limit: $(ls run/checkpoints)"
done
# An abandoned step is replaced only when the new one is complete.
train "${S[@]}" rollout.num_rollout=4 checkpoint.keep_last=0 --resume || wrong "the run cannot be resumed any more"
(trap '' XFSZ; ulimit -f 50; train "${S[@]}" rollout.num_rollout=4 checkpoint.keep_last=0 --resume run/checkpoints/step_000002) && wrong "a save without room ended well"
for step in 2 3 4; do
  timeout 60 "$B" convert-hf --to hf --load run/checkpoints/step_00000$step --save whole_$step >/dev/null 2>&1 || wrong "step $step is damaged by a save that had no room"
done
train "${S[@]}" rollout.num_rollout=4 --resume || wrong "the run cannot be continued: $(tail -n 1 out)"
