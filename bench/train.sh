#!/usr/bin/env bash
# Training steps of a model with random weights on samples of random tokens. Measures the tables of grids in
# docs/performance.md. Needs no checkpoint, only its config.json.
#
#   bench/train.sh FOLDER RANKS [KEY=VALUE ...]
#     FOLDER   config.json;  KEYs  configuration: the grid, the optimizer
#
# Environment (default): LAYERS (all), SAMPLES per step (32), TOKENS per sample (8192), STEPS (3); OUT: the run's folder
# (runs/bench-train); SLX_BINARY: the program.
# Prints one line per step; the first step warms up.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 2 ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 ranks=$2
shift 2
source bench/random_run.sh
run=${OUT:-runs/bench-train}
tokens=${TOKENS:-8192} samples=${SAMPLES:-32} steps=${STEPS:-3}
start_run "$folder" "$run"
mkdir "$run/dump"
vocabulary=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$run/model/config.json")
for ((step = 0; step < steps; ++step)); do
  awk -v samples="$samples" -v tokens="$tokens" -v seed="$step" -v vocabulary="$vocabulary" 'BEGIN {
    srand(seed + 1)
    for (s = 0; s < samples; ++s) {
      printf "{\"group\": %d, \"sample\": 0, \"rollout\": %d, \"advantage\": %s, \"response_length\": %d, \"tokens\": [", seed * samples + s, seed, s % 2 ? "1" : "-1", tokens - 1
      for (t = 0; t < tokens; ++t) printf "%s%d", t ? "," : "", int(rand() * vocabulary)
      print "]}"
    } }' >"$run/dump/rollout_$(printf %06d "$step").jsonl"
done
train_random "$run" "$ranks" "debug.load_rollout=$run/dump" "rollout.num_rollout=$steps" train.num_steps_per_rollout=1 \
  "train.max_tokens_per_gpu=$tokens" "$@"

awk "$field_awk"'
  BEGIN { printf "%8s %10s %12s %18s\n", "step", "train s", "of it AdamW", "TFLOP/s a GPU" }
  field("perf/actor_train_time") > 0 {
    printf "%8d %10.3f %12.3f %18.1f\n", field("rollout/step"), field("perf/actor_train_time"), field("perf/optimizer_time"), field("perf/actor_train_tflops")
    rows += 1
  }
  END { exit rows == 0 }
' "$run/run/metrics.jsonl"
