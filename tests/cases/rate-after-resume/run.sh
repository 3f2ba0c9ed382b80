#!/usr/bin/env bash
# Without lr_decay_iters the learning rate decays until the run's last step: after a resume, the steps done plus the
# steps left. A resume that moves this end logs the rate with the old and the new end.
source "$(dirname "$0")/../lib.sh"
rates() { values "$1/train_steps.jsonl" train_step/lr; }
# resumed NAME END STYLE SETTINGS: a run of 4 rollouts with 2 steps each, resumed after 2 rollouts with SETTINGS. Step n
# after the resume must have the rate of step n in a schedule of END steps.
resumed() {
  local name=$1 end=$2 style=$3; shift 3
  rm -rf b
  train --set observe.run_dir="$T/b" optimizer.lr_decay_style="$style" "${S[@]}" "$@" --resume "$T/$style/checkpoints/step_000002" || wrong "$name: $(tail -3 out)"
  rates b | awk -v end="$end" -v style="$style" -v pi=3.14159265358979 '
    { x = (NR + 3) / end; want = 1e-5 + (1e-3 - 1e-5) * (style == "linear" ? 1 - x : (1 + cos(pi * x)) / 2) }
    ($1 - want) ^ 2 > 1e-24 { bad++; print "step " NR + 3 ": " $1 ", not " want } END { exit bad > 0 || NR != end - 4 }' || wrong "$name: $(rates b | tr '\n' ' ')"
}
S=(optimizer.min_lr=1e-5 checkpoint.save_interval=1 checkpoint.keep_last=0)
for style in linear cosine; do
  train --set observe.run_dir="$T/$style" optimizer.lr_decay_style=$style train.num_steps_per_rollout=2 "${S[@]}" || wrong "$(tail -3 out)"
done
said() { grep -c 'the learning rate now decays until' out; }
resumed "as before" 8 cosine train.num_steps_per_rollout=2
[[ $(said) == 0 ]] || wrong "nothing moved, and the log says: $(grep 'decays' out)"
resumed "fewer steps" 6 cosine train.num_steps_per_rollout=1
grep -q 'until optimizer step 6;.* step 8. .* is 0.0002575 instead of 0.000505' out || wrong "the rates are not named: $(grep decay out)"
resumed "fewer steps" 6 linear train.num_steps_per_rollout=1
resumed "more steps" 12 linear train.num_steps_per_rollout=4
resumed "more rollouts" 12 cosine train.num_steps_per_rollout=2 rollout.num_rollout=6
[[ $(said) == 1 ]] || wrong "more rollouts: no line says that the end moved"
resumed "an end of its own" 8 linear train.num_steps_per_rollout=1 rollout.num_rollout=6 optimizer.lr_decay_iters=8
