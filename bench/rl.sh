#!/usr/bin/env bash
# Whole GRPO rollouts of a model with random weights: samples from an engine, a training step, the update, the
# hand-over. Measures the tables in docs/performance.md. Needs no checkpoint, only its config.json and tokenizer.json.
#
#   bench/rl.sh FOLDER PROMPTS RANKS [KEY=VALUE ...]
#     FOLDER   config.json, tokenizer.json;  PROMPTS  JSON lines with prompt and label, e.g. dapo-math-17k
#     KEYs     configuration: layout, engine, optimizer
#
# Environment (default): LAYERS (all), ROLLOUTS (2), SAMPLES per rank (64), GROUP (8), NEW_TOKENS at most (4096); STOPS
# (25): the number of tokens that end a response, which gives exponentially distributed lengths; OUT: the run's folder
# (runs/bench-rl); SLX_BINARY: the program.
# Prints one line per rollout, and stops with status 1 if a log-prob differs between training and generation in any bit.
set -euo pipefail
cd "$(dirname "$0")/.."
[[ $# -ge 3 ]] || { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$1 prompts=$2 ranks=$3
shift 3
source bench/random_run.sh
run=${OUT:-runs/bench-rl}
samples=$((${SAMPLES:-64} * ranks)) group=${GROUP:-8}
start_run "$folder" "$run"
stops=$(seq -s, 100 $((99 + ${STOPS:-25})))
train_random "$run" "$ranks" "data.prompt_data=$prompts" data.rollout_shuffle=true reward.rm_type=random \
  "rollout.num_rollout=${ROLLOUTS:-2}" "rollout.rollout_batch_size=$((samples / group))" "rollout.n_samples_per_prompt=$group" \
  rollout.rollout_max_prompt_len=1024 "rollout.rollout_max_response_len=${NEW_TOKENS:-4096}" "rollout.rollout_stop_token_ids=[$stops]" \
  rollout.max_running_requests=256 "$@"

# Prints values from metrics.jsonl, one line per rollout.
awk -v n="$samples" -v ranks="$ranks" "$field_awk"'
  BEGIN { printf "%8s %10s %12s %12s %10s %10s %10s %14s %10s %10s\n", "rollout", "response", "generate s", "reference s", "train s", "of it AdamW", "hand-over", "tokens/s a GPU", "gained", "TFLOP/s" }
  field("perf/generate_time") > 0 {
    printf "%8d %10.1f %12.2f %12.2f %10.2f %10.2f %10.4f %14.0f %10.2f %10.0f\n", field("rollout/step"), field("rollout/response_lengths"), field("perf/generate_time"),
      field("perf/ref_log_probs_time"), field("perf/actor_train_time"), field("perf/optimizer_time"), field("perf/update_weights_time"),
      n * field("rollout/total_lengths") / field("perf/step_time") / ranks, field("rollout/spec_accept_length"), field("perf/actor_train_tflops")
    compared += field("train/compared_tokens"); differing += field("train/mismatch_tokens") > 0
  }
  END { printf "%d response tokens compared with training; rollouts with one that differs: %d\n", compared, differing; exit differing > 0 || compared == 0 }
' "$run/run/metrics.jsonl"
