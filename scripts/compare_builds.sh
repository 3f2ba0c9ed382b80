#!/usr/bin/env bash
# Compares two builds on the CPU byte by byte: log-probs and entropies of given tokens, then three optimizer steps on a
# given rollout (gradients and weights of the first step, weights after the last). Repeats this for each instruction set
# of this host (SLX_CPU_KERNELS) and every model folder that the old build supports. A build that does not read
# SLX_CPU_KERNELS always runs its best set: name this set with --kernels.
#
#   scripts/compare_builds.sh OLD NEW                          the golden models
#   scripts/compare_builds.sh OLD NEW MODEL...                 these model folders
#   scripts/compare_builds.sh --kernels "avx512" OLD NEW ...   these instruction sets
#
# Prints one line per model and instruction set; exits 1 if any byte differs.
set -euo pipefail
kernels="generic avx2 avx512"
while [[ ${1:-} == -* ]]; do
  case $1 in
    --kernels) kernels=${2:?--kernels needs a list}; shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "scripts/compare_builds.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
done
old=$(realpath "${1:?usage: scripts/compare_builds.sh OLD NEW}")
new=$(realpath "${2:?usage: scripts/compare_builds.sh OLD NEW}")
shift 2
here=$(realpath "$(dirname "$0")/..")
models=("$@")
[[ $# -gt 0 ]] || models=("$here"/tests/golden/models/* "$here"/tests/golden/oracle/*)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Sequences of 2 to 60 tokens below `vocabulary`, as lines for score or as samples of a rollout.
make_rows() {  # vocabulary, samples
  awk -v vocabulary="$1" -v samples="$2" 'BEGIN {
    state = 12345
    for (row = 0; row < 24; ++row) {
      state = (state * 1103 + 12345) % 2147483647
      length_of_row = 2 + state % 59; response = 1 + state % (length_of_row - 1); tokens = ""
      for (t = 0; t < length_of_row; ++t) {
        state = (state * 1103 + 12345) % 2147483647
        tokens = tokens (t ? "," : "") state % vocabulary
      }
      if (samples)
        printf "{\"group\":%d,\"sample\":%d,\"response_length\":%d,\"reward\":%d,\"tokens\":[%s]}\n",
               row / 4, row % 4, response, state % 3, tokens
      else
        printf "{\"tokens\":[%s]}\n", tokens
    }
  }'
}

run() {  # folder for results, binary, model
  local out=$1 binary=$2 model=$3
  mkdir -p "$out"
  "$binary" score --device cpu -q --hf-checkpoint "$model" --input "$scratch/rows.jsonl" \
    --output "$out/scores.jsonl" 2>"$out/score.log" || return 1
  "$binary" train --device cpu -q --set "model.hf_checkpoint=$model" "debug.load_rollout=$scratch/samples.jsonl" \
    "debug.dump_gradients=$out/first" "debug.dump_weights=$out/first" "checkpoint.save_hf=$out/last" "observe.run_dir=$out/run" \
    observe.tensorboard=false observe.log_samples_interval=0 train.num_steps_per_rollout=3 train.max_tokens_per_gpu=150 \
    rl.advantage_estimator=grpo rl.entropy_coef=0.01 rollout.n_samples_per_prompt=4 \
    optimizer.lr=1.0e-2 optimizer.weight_decay=0.1 >"$out/train.log" 2>&1 || return 1
}

failed=false
for model in "${models[@]}"; do
  vocabulary=$(sed -n 's/.*"vocab_size": *\([0-9]*\).*/\1/p' "$model/config.json" | head -n 1)
  make_rows "$vocabulary" 0 >"$scratch/rows.jsonl"
  make_rows "$vocabulary" 1 >"$scratch/samples.jsonl"
  for set_of_kernels in $kernels; do
    export SLX_CPU_KERNELS=$set_of_kernels
    name="$(basename "$model") $set_of_kernels"
    results=$scratch/$(basename "$model").$set_of_kernels
    if ! run "$results/new" "$new" "$model"; then
      echo "$name: the new build fails: $(cat "$results"/new/*.log | tr '\n' ' ')"
      grep -q 'SLX_CPU_KERNELS' "$results"/new/*.log || failed=true
    elif ! run "$results/old" "$old" "$model"; then
      echo "$name: not compared, the old build fails: $(cat "$results"/old/*.log | tr '\n' ' ')"
    else
      differences=""
      for file in scores.jsonl first/gradients.safetensors first/weights.safetensors last/model.safetensors; do
        cmp -s "$results/old/$file" "$results/new/$file" || differences+=" $file"
      done
      echo "$name: ${differences:+differs in}${differences:-equal}"
      [[ -z $differences ]] || failed=true
    fi
  done
done
! $failed
