# Sourced by rl.sh and train.sh: runs a model with random weights; only its config.json is needed.

# start_run FOLDER RUN: copies the files of FOLDER to RUN/model, with LAYERS layers if that is set.
start_run() {
  rm -rf "$2"
  mkdir -p "$2/model"
  cp "$1"/*.json "$2/model/"
  [[ -z ${LAYERS:-} ]] || sed -i "s/\"num_hidden_layers\": [0-9]*/\"num_hidden_layers\": $LAYERS/" "$2/model/config.json"
}

# train_random RUN RANKS KEY=VALUE ...: writes the log to RUN/log.txt and metrics to RUN/run.
train_random() {
  local run=$1 ranks=$2 launch=() set_keys=() key
  shift 2
  ((ranks == 1)) || { launch=(mpirun --bind-to none --oversubscribe -np "$ranks"); ((EUID != 0)) || launch+=(--allow-run-as-root); }
  for key in "model.hf_checkpoint=$run/model" debug.random_weights=true optimizer.lr=1e-6 "observe.run_dir=$run/run" "$@"; do set_keys+=(--set "$key"); done
  echo "{}" >"$run/empty.yaml"
  "${launch[@]}" "${SLX_BINARY:-build/cuda/src/cli/slimexx}" train --config "$run/empty.yaml" "${set_keys[@]}" >"$run/log.txt" 2>&1 ||
    { tail -n 30 "$run/log.txt" >&2; return 1; }
}

# An awk function that reads a number from a line of metrics.jsonl: field("perf/step_time").
field_awk='function field(name) { return match($0, "\"" name "\": *[-0-9.e+]+") ? substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0 : 0 }'
