#!/usr/bin/env bash
# An export folder that contains, equals or lies in another folder of the run is refused when the configuration is read.
source "$(dirname "$0")/../lib.sh"
mkdir shop; ln -s "$T/run" link
refused() {
  train --set checkpoint.save_interval=1 "$@" && wrong "accepted: $*"
  grep -q 'choose a new folder' out || wrong "$*: $(tail -n 3 out)"
  [[ ! -e run ]] || wrong "$*: a refused run left its folder"
}
for folder in run run/checkpoints run/checkpoints/step_000001 run/samples run/logs/x run/tb run/ranks run/trace "$T" link link/samples run/../run/checkpoints model; do
  refused checkpoint.save_hf="$folder"
done
refused checkpoint.save_hf=ck checkpoint.save=ck
refused checkpoint.save_hf=ck checkpoint.save="$T/ck/deep"
refused checkpoint.save_hf=ck/hf checkpoint.save=ck
refused checkpoint.save_hf=out debug.save_rollout=out
refused checkpoint.save=run/samples
refused checkpoint.save=model
refused observe.run_dir=model
[[ -e model/model.safetensors ]] || wrong "the model is gone"
train --set checkpoint.save_interval=1 checkpoint.save_hf=run/hf || wrong "a folder of its own in the run folder is refused: $(tail -n 3 out)"
[[ -e run/hf/model.safetensors && -e run/checkpoints/step_000004/manifest.json ]] || wrong "the export or the checkpoint is missing"
