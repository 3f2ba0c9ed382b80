#!/usr/bin/env bash
# From a bare Debian 12, Debian 13 or Ubuntu 24.04 to a model that visibly learns with GRPO: installs the packages,
# builds, and runs the quickstart (two to four minutes on two cores after the build).
#   scripts/quickstart.sh            all of it
#   scripts/quickstart.sh --no-build only the run, with the existing binary
set -euo pipefail
cd "$(dirname "$0")/.."
slimexx=build/cpu/slimexx
ranks=${SLIMEXX_RANKS:-2}

if [[ ${1:-} != --no-build ]]; then
  scripts/install_deps.sh
  cmake --preset cpu
  cmake --build --preset cpu --target slimexx -j"$(nproc)"
fi

run=runs/quickstart
if [[ -e $run ]]; then
  number=1
  while [[ -e $run.$number ]]; do number=$((number + 1)); done
  mv "$run" "$run.$number"
  echo "== the folder of the earlier quickstart is now $run.$number"
fi
started=$SECONDS
echo "== data and a random model of 821,120 parameters"
scripts/quickstart_data.sh "$run/data"
"$slimexx" init --model-config configs/models/quickstart.json --tokenizer byte-level --seed 1 --save "$run/random_model"
echo "== supervised start: half of the additions are wrong"
"$slimexx" train --config configs/quickstart-sft.yaml
echo "== GRPO on $ranks ranks: only rewards tell right answers from wrong ones"
launch=()
if command -v mpirun >/dev/null && ((ranks > 1)); then
  launch=(mpirun -np "$ranks" --oversubscribe)
  ((EUID == 0)) && launch+=(--allow-run-as-root)
fi
"${launch[@]}" "$slimexx" train --config configs/quickstart.yaml
cat <<EOF

The quickstart took $((SECONDS - started)) s. The model is in $run/grpo_model, a Hugging Face folder, and the run with its metrics, samples and
log in $run/grpo (docs/howto/observe.md). Next:

  $slimexx samples $run/grpo --eval held-out --wrong
  tensorboard --logdir $run
  $slimexx generate --hf-checkpoint $run/grpo_model --input $run/data/heldout.jsonl --greedy | head -3
  $slimexx eval --hf-checkpoint $run/grpo_model --data held-out=$run/data/heldout.jsonl --set reward.rm_type=math --set rollout.rollout_max_response_len=6
  ${launch[*]} $slimexx train --config configs/quickstart.yaml --set rollout.num_rollout=600 --resume
EOF
