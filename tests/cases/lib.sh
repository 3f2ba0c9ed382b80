# Sourced by the run.sh of a case as `source "$(dirname "$0")/../lib.sh"`, with the program as $1. Changes to a scratch
# folder $T with a tiny model, prompts and a configuration; the case's own folder is $CASE. A case exits 0 only if the
# program behaves correctly.
set -uo pipefail
B=$(realpath "${1:?usage: run.sh PATH_OF_SLIMEXX}")
CASE=$(cd "$(dirname "$0")" && pwd)
T=$(mktemp -d "${TMPDIR:-/tmp}/slx_case_XXXXXX")
trap 'rm -rf "$T"' EXIT
export NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cd "$T"

wrong() { echo "WRONG: $*"; exit 1; }

# make_model NAME [SEED]: makes a folder with random weights from $T/config.json.
make_model() { timeout 60 "$B" init --model-config "$T/config.json" --tokenizer byte-level --seed "${2:-1}" --save "$T/$1" >/dev/null 2>&1 || wrong "init fails"; }

# train ARGUMENTS: trains with $T/run.yaml; the output is in $T/out.
train() { timeout -k 2 120 "$B" train --config "$T/run.yaml" "$@" >"$T/out" 2>&1; }

# values FILE KEY: prints the numbers of a key in a file of JSON lines, one per line.
values() { grep -o "\"$2\": *[^,}]*" "$1" | sed 's/.*: *//'; }

# grade_all RM_TYPE: grades the case's cases.jsonl; "want" is 1 if the reward must be above 0.5, otherwise 0.
grade_all() {
  timeout 60 "$B" grade --rm-type "$1" --input "$CASE/cases.jsonl" --output "$T/rewards" || exit 1
  paste -d'\t' <(grep -o '"want": *[01]' "$CASE/cases.jsonl" | grep -o '[01]$') <(sed -E 's/.*"reward": *(-?[0-9.]+).*/\1/' "$T/rewards") "$CASE/cases.jsonl" |
    awk -F'\t' '{ if (($2 > 0.5) != ($1 == 1)) { bad++; print "wrong: reward " $2 ": " $3 } } END { print NR - bad " of " NR " right"; exit bad > 0 || NR == 0 }'
}

cat >config.json <<'END'
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32", "vocab_size": 320,
 "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
 "intermediate_size": 128, "max_position_embeddings": 256, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "hidden_act": "silu", "initializer_range": 0.05,
 "eos_token_id": 256}
END
for i in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%d + 1 =", "label": "%d"}\n' $i $((i + 1)); done >prompts.jsonl
cat >run.yaml <<END
model: {hf_checkpoint: $T/model}
data: {prompt_data: $T/prompts.jsonl, rollout_shuffle: true, seed: 3}
rollout: {num_rollout: 4, rollout_batch_size: 2, n_samples_per_prompt: 2, rollout_max_response_len: 8, kv_cache_gib: 0.02}
reward: {rm_type: random}
rl: {advantage_estimator: grpo}
train: {max_tokens_per_gpu: 150}
optimizer: {lr: 1.0e-3}
observe: {run_dir: $T/run, tensorboard: false, log_samples_interval: 0, samples_interval: 0}
END
make_model model
