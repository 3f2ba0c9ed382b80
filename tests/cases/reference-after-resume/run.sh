#!/usr/bin/env bash
# If a checkpoint has a reference that follows the policy, another model.ref_load is refused with both folders; the same
# folder under another name is accepted.
source "$(dirname "$0")/../lib.sh"
make_model r1 7
make_model r2 9
S=(rl.use_kl_loss=true rl.kl_loss_coef=0.1 rl.kl_loss_type=k3 checkpoint.save_interval=1 checkpoint.keep_last=0)
train --set observe.run_dir="$T/a" "${S[@]}" rl.ref_update_interval=5 model.ref_load="$T/r1" rollout.num_rollout=1 || wrong "$(tail -3 out)"
on() { rm -rf b; train --set observe.run_dir="$T/b" "${S[@]}" rollout.num_rollout=2 "$@" --resume "$T/a/checkpoints/step_000001"; }
on rl.ref_update_interval=5 model.ref_load="$T/r2" && wrong "another reference is taken and not used"
grep -q "$T/r1" out && grep -q "$T/r2" out && grep -q 'model.finetune' out || wrong "$(tail -4 out)"
on model.ref_load="$T/r2" && wrong "another reference is taken where it no longer moves"
ln -s r1 link
on rl.ref_update_interval=5 model.ref_load="$T/link/" || wrong "the same folder: $(tail -4 out)"
# If the checkpoint has no reference, the folder's is used.
train --set observe.run_dir="$T/c" "${S[@]}" model.ref_load="$T/r1" rollout.num_rollout=1 || wrong "$(tail -3 out)"
for r in r1 r2; do
  train --set observe.run_dir="$T/$r.run" "${S[@]}" model.ref_load="$T/$r" rollout.num_rollout=2 --resume "$T/c/checkpoints/step_000001" || wrong "$(tail -3 out)"
done
[[ $(values r1.run/metrics.jsonl train/kl_loss) != "$(values r2.run/metrics.jsonl train/kl_loss)" ]] || wrong "kl_loss is the same with either reference"
