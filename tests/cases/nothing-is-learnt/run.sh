#!/usr/bin/env bash
# All groups are flat and all responses truncated: reported after the first rollout and again ten rollouts later, not in
# between.
source "$(dirname "$0")/../lib.sh"
train --set reward.rm_type=dapo rollout.num_rollout=12 checkpoint.save_interval=0 optimizer.lr=0 || wrong "the run ends: $(tail -5 out)"
for text in "rollout \(0\|10\): no learning signal" "rollout \(0\|10\): all 4 responses were truncated"; do
  [ "$(grep -c "$text" out)" = 2 ] || wrong "$text: $(grep -c "$text" out) times"
done
[ "$(grep -c 'no learning signal' out)" = 2 ] || wrong "said too often: $(grep 'no learning signal' out)"
grep -q '"not_learning": "no learning signal.*no answer.*all 4 responses' run/status.json || wrong "status.json: $(cat run/status.json)"
train --set reward.rm_type=random rollout.num_rollout=2 rollout.n_samples_per_prompt=8 checkpoint.save_interval=0 observe.run_dir=other || wrong "the run ends: $(tail -5 out)"
grep -q 'no learning signal' out && wrong "said of groups that are not flat"
grep -q '"not_learning"' other/status.json || wrong "no such key in status.json"
