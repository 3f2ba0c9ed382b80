#!/usr/bin/env bash
# Train steps of a model with random weights on samples of random tokens, as the ledger's tables of grids were measured. A checkpoint is
# not needed, only its config.json.
#
#   bench/train.sh FOLDER RANKS [KEY=VALUE ...]
#     FOLDER   config.json;  KEYs  of the configuration: the grid, the optimizer
#
# LAYERS (all), SAMPLES a step (32), TOKENS of a sample (8192), STEPS (3). OUT: the run's folder (runs/bench-train). SLX_BINARY.
# It prints a line a step; the first one warms up.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 2 ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 ranks=$2
shift 2
slimexx=${SLX_BINARY:-build/cuda/src/cli/slimexx}
run=${OUT:-runs/bench-train}
tokens=${TOKENS:-8192} samples=${SAMPLES:-32} steps=${STEPS:-3}
rm -rf "$run"
mkdir -p "$run/model" "$run/dump"
cp "$folder/config.json" "$run/model/"
[[ -z ${LAYERS:-} ]] || sed -i "s/\"num_hidden_layers\": [0-9]*/\"num_hidden_layers\": $LAYERS/" "$run/model/config.json"
for ((step = 0; step < steps; ++step)); do
  awk -v samples="$samples" -v tokens="$tokens" -v seed="$step" 'BEGIN {
    srand(seed + 1)
    for (s = 0; s < samples; ++s) {
      printf "{\"group\": %d, \"sample\": 0, \"rollout\": %d, \"advantage\": %s, \"response_length\": %d, \"tokens\": [", seed * samples + s, seed, s % 2 ? "1" : "-1", tokens - 1
      for (t = 0; t < tokens; ++t) printf "%s%d", t ? "," : "", 100 + int(rand() * 50000)
      print "]}"
    } }' >"$run/dump/rollout_$(printf %06d "$step").jsonl"
done
launch=()
((ranks == 1)) || { launch=(mpirun --bind-to none --oversubscribe -np "$ranks"); ((EUID != 0)) || launch+=(--allow-run-as-root); }
keys=("model.hf_checkpoint=$run/model" "debug.random_weights=true" "debug.load_rollout=$run/dump" "rollout.num_rollout=$steps"
  "train.num_steps_per_rollout=1" "train.max_tokens_per_gpu=$tokens" "optimizer.lr=1e-6" "observe.run_dir=$run/run" "$@")
set_keys=()
for key in "${keys[@]}"; do set_keys+=(--set "$key"); done
echo "{}" >"$run/empty.yaml"
"${launch[@]}" "$slimexx" train --config "$run/empty.yaml" "${set_keys[@]}" >"$run/log.txt" 2>&1 || { tail -n 30 "$run/log.txt" >&2; exit 1; }

awk '
  function field(name) { return match($0, "\"" name "\": *[-0-9.e+]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0 }
  BEGIN { printf "%8s %10s %12s %18s\n", "step", "train s", "of it AdamW", "TFLOP/s a GPU" }
  field("perf/actor_train_time") > 0 {
    printf "%8d %10.3f %12.3f %18.1f\n", field("rollout/step"), field("perf/actor_train_time"), field("perf/optimizer_time"), field("perf/actor_train_tflops")
    rows += 1
  }
  END { exit rows == 0 }
' "$run/run/metrics.jsonl"
