#!/usr/bin/env bash
# A run saves its last state when it ends, unless checkpoint.save_interval is 0: then banner and dry run say so.
source "$(dirname "$0")/../lib.sh"
train --set rollout.num_rollout=3 || wrong "$(tail -n 1 out)"
[[ $(ls run/checkpoints | tr '\n' ' ') == "latest step_000003 " ]] || wrong "nothing is saved: $(ls run/checkpoints)"
grep -q 'saves     the final state, to ' out || wrong "the banner does not say what is saved"
# The run folder is accepted in place of its folder of checkpoints.
train --resume "$T/run" || wrong "--resume RUN: $(tail -n 3 out)"
grep -q 'at rollout 3' out || wrong "--resume RUN began elsewhere"
timeout 60 "$B" convert-hf --to hf --load run --save hf >out 2>&1 || wrong "--load RUN: $(cat out)"
train --set observe.run_dir=other model.load="$T/run" model.finetune=true rollout.num_rollout=1 || wrong "model.load=RUN: $(tail -n 3 out)"
train --set observe.run_dir=third model.load="$T/run" model.ckpt_step=3 rollout.num_rollout=4 || wrong "model.ckpt_step of RUN: $(tail -n 3 out)"
train --resume && train --resume && grep -q '4 of 4 rollouts are done; raise rollout.num_rollout to continue' out || wrong "nothing is said of a run that is done"
for what in --dry-run ""; do
  train --set observe.run_dir=none checkpoint.save_interval=0 $what || wrong "$(tail -n 1 out)"
  grep -q 'saves     nothing at the end of the run, because checkpoint.save_interval is 0' out || wrong "the banner does not say that nothing is saved"
  grep -q 'resume    after a signal or an error: ' out || wrong "the banner proposes to resume what is not saved"
done
[[ ! -e none/checkpoints/latest ]] || wrong "save_interval 0 saves"
train --set observe.run_dir=dry --dry-run || wrong "$(tail -n 1 out)"
grep -q 'checkpoints .*dry/checkpoints can be written; saved: the final state' out || wrong "dry run: $(grep checkpoints out)"
