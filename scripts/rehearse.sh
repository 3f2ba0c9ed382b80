#!/usr/bin/env bash
# Runs a recipe's grid and engines with toy widths: all ranks of the recipe as threads of one process on the CPU, for
# two whole rollouts with an update each. Checks that log-probs of training equal those of generation to the bit, and
# that engines have the trainer's weights.
#
#   scripts/rehearse.sh glm4.5-355b [KEY=VALUE ...]     configs/NAME.yaml; further keys override it
#   scripts/rehearse.sh --plan glm4.5-355b              only its plan
#
# SLX_BINARY names the program (build/cpu/slimexx). The run is in OUT/NAME (runs/rehearse).
set -euo pipefail
cd "$(dirname "$0")/.."
plans_only=false
[[ ${1:-} != --plan ]] || { plans_only=true; shift; }
recipe=${1:?name a recipe: $(cd configs && ls glm*.yaml | tr '\n' ' ')}
shift
slimexx=${SLX_BINARY:-build/cpu/slimexx}
config=configs/$recipe.yaml
[[ -f $config ]] || { echo "scripts/rehearse.sh: $config does not exist" >&2; exit 2; }
files=("$config")
base=$(sed -n 's/^defaults: *//p' "$config")
[[ -z $base ]] || files+=("configs/$base")
model=$(basename "$(sed -n 's/^ *hf_checkpoint: *//p' "${files[@]}" | head -1)")
run=${OUT:-runs/rehearse}/$recipe
# Remove an earlier rehearsal; its toy model identifies it.
if [[ -e $run && ! -f $run/toy/config.json ]]; then
  echo "scripts/rehearse.sh: $run exists, but no rehearsal wrote it: move it, or set OUT to another folder" >&2
  exit 2
fi
rm -rf "$run"
mkdir -p "$run/toy"

# Keep the numbers of layers, experts and heads that the grid divides; shrink widths, tables and the vocabulary. Toy
# widths are less than a block of FP8.
shrink() {
  awk -v pairs="$*" '
    BEGIN { n = split(pairs, list, " "); for (i = 1; i <= n; ++i) { split(list[i], p, "="); toy[p[1]] = p[2] } }
    match($0, /"[a-z_]+": /) {
      key = substr($0, RSTART + 1, RLENGTH - 4)
      if (key in toy) { print "  \"" key "\": " toy[key] ","; next }
    }
    { print }' "configs/models/$model/config.json" | tr -d '\n' | sed 's/,  *}/}/; s/,}/}/'
}
all=(hidden_size=64 intermediate_size=64 moe_intermediate_size=16 vocab_size=512 max_position_embeddings=512 eos_token_id=256 'dtype="float32"')
latent=(q_lora_rank=32 kv_lora_rank=32 qk_nope_head_dim=16 qk_rope_head_dim=8 qk_head_dim=24 head_dim=8 v_head_dim=16)
case $model in
  GLM-4.5 | GLM-4.7) all+=(num_attention_heads=16 head_dim=16) ;;
  GLM-4.7-Flash) all+=("${latent[@]}") ;;
  # Each of the 256 ranks holds all of the attention: weights and their transfers each take a third of the memory.
  GLM-5*) all+=(hidden_size=32 moe_intermediate_size=8 q_lora_rank=16 kv_lora_rank=8 qk_nope_head_dim=8 qk_rope_head_dim=4 qk_head_dim=12 head_dim=4
    v_head_dim=8 num_attention_heads=8 num_key_value_heads=8 index_n_heads=4 index_head_dim=8 index_topk=16) ;;
  GLM-Z1*) all+=(num_attention_heads=8 head_dim=16) ;;
esac
shrink "${all[@]}" >"$run/toy/config.json"
for a in 1 2 3 4 5 6 7 8; do printf '{"prompt": "%d+%d=", "label": "%d"}\n' "$a" "$a" $((2 * a)); done >"$run/prompts.jsonl"

"$slimexx" init --model-config "$run/toy/config.json" --tokenizer byte-level --seed 1 --save "$run/model"
ranks=$(sed -n 's/.*mpirun -np \([0-9]*\) .*/\1/p' "$config" | head -1)
settings=(model.hf_checkpoint="$run/model" data.prompt_data="$run/prompts.jsonl" data.apply_chat_template=false
  reward.rm_type=random eval.eval_prompt_data={} rollout.rollout_max_prompt_len=32 rollout.num_rollout=2 rollout.rollout_batch_size=4 rollout.n_samples_per_prompt=4
  rollout.rollout_max_response_len=8 rollout.rollout_stop_token_ids=[] rollout.kv_cache_gib=0.002 train.global_batch_size=null train.num_steps_per_rollout=1
  train.max_tokens_per_gpu=32 eval.eval_interval=0 checkpoint.save="$run/checkpoints" checkpoint.save_interval=0
  numerics.fp8=off observe.run_dir="$run/run" observe.tensorboard=false debug.check_weight_hash=true "$@")
grep -q 'ref_load' "${files[@]}" && settings+=(model.ref_load="$run/model")
grep -q '^ *over_sampling_batch_size:' "${files[@]}" && settings+=(rollout.over_sampling_batch_size=8)
echo "== the shape that $config gives"
"$slimexx" plan --config "$config" --gpu cpu --gpus "$ranks" --set "${settings[@]}" | sed -n '/^apart\|^grid/,/^$/p'
! $plans_only || exit 0
started=$SECONDS
"$slimexx" train --config "$config" --thread-ranks "$ranks" --set "${settings[@]}"
awk -v seconds=$((SECONDS - started)) '
  { rows += 1
    if (match($0, /"train\/mismatch_tokens": *[0-9.]+/)) { split(substr($0, RSTART, RLENGTH), p, ":"); mismatches += p[2] } else missing += 1
    if (match($0, /"rollout\/num_tokens": *[0-9.]+/)) { split(substr($0, RSTART, RLENGTH), p, ":"); tokens += p[2] } }
  END {
    printf "%d rollouts, %d tokens, %d of them differ in a bit; %d s\n", rows, tokens, mismatches, seconds
    exit !(rows == 2 && missing == 0 && mismatches == 0 && tokens > 0)
  }' "$run/run/metrics.jsonl"
