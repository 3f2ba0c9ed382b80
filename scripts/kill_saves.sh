#!/usr/bin/env bash
# Kills (SIGKILL) a small training run at random moments around its saves, repeatedly, and continues it each time with
# --resume auto. No kill may lose a checkpoint that the run reported as complete. In the end the rows of metrics.jsonl
# (without times), the last checkpoint and the export must equal those of a run without kills, byte for byte.
#
#   scripts/kill_saves.sh                 ten kills
#   scripts/kill_saves.sh --times 50
#   --ranks N         ranks as threads of the process (default 1)
#   --seed N          seed of the random moments (default: a new seed each time)
#   --slimexx PATH    default: the last program built
#   --keep            keeps the runs
#
# Every second start writes its checkpoints in the foreground. Status 1 if any check fails.
set -euo pipefail
cd "$(dirname "$0")/.."

times=10 ranks=1 seed=$RANDOM keep=false
slimexx=$(ls -t build/*/slimexx build/*/src/cli/slimexx 2>/dev/null | head -n 1 || true)
while [[ $# -gt 0 ]]; do
  case $1 in
    --times) times=${2:?} ; shift ;;
    --ranks) ranks=${2:?} ; shift ;;
    --seed) seed=${2:?} ; shift ;;
    --slimexx) slimexx=${2:?} ; shift ;;
    --keep) keep=true ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
  esac
  shift
done
[[ -x $slimexx ]] || { echo "kill_saves: no program at '$slimexx': build it first, or give its path with --slimexx" >&2; exit 2; }
RANDOM=$seed

work=$(mktemp -d "${TMPDIR:-/tmp}/slx_saves_XXXXXX")
pid=
clean_up() {
  [[ -z $pid ]] || kill -KILL "$pid" 2>/dev/null || true
  if $keep; then echo "kill_saves: the runs are in $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT
fail() { echo "kill_saves: seed $seed, kill $kills: $*" >&2; sed 's/^/    /' "$work/out" | tail -n 20 >&2; exit 1; }

cat >"$work/config.json" <<END
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32", "vocab_size": 320,
 "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
 "intermediate_size": 384, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "hidden_act": "silu", "initializer_range": 0.05,
 "eos_token_id": 256}
END
"$slimexx" init --model-config "$work/config.json" --tokenizer byte-level --seed 1 --save "$work/model" >/dev/null 2>&1
for i in 1 2 3 4; do printf '{"prompt": "%d + 1 =", "label": "%d"}\n' "$i" $((i + 1)); done >"$work/prompts.jsonl"

most_saves=2  # most saves that a start completes before it is killed
rollouts=$((times * most_saves + 1))
# exec: the program itself is the background process, so that the kill hits it.
start() {  # name, async_save
  local threads=()
  ((ranks == 1)) || threads=(--thread-ranks "$ranks")
  exec "$slimexx" train --resume auto "${threads[@]}" --set observe.run_dir="$work/$1" observe.tensorboard=false \
    observe.log_samples_interval=0 observe.samples_interval=0 model.hf_checkpoint="$work/model" \
    data.prompt_data="$work/prompts.jsonl" data.rollout_shuffle=true rollout.num_rollout=$rollouts rollout.rollout_batch_size=2 \
    rollout.n_samples_per_prompt=2 rollout.rollout_max_response_len=4 rollout.kv_cache_gib=0.02 reward.rm_type=random \
    optimizer.lr=1e-3 checkpoint.save_interval=1 checkpoint.keep_last=2 checkpoint.async_save="$2" \
    checkpoint.save_hf="$work/$1.hf" >>"$work/out" 2>&1 </dev/null
}

# Sleeps for some milliseconds without starting a program.
exec {nothing}<> <(:)
nap() { read -rt "$1" -u "$nothing" || true; }
# A number in a line of the last start's output, or -1.
last_number() { sed -n "s/.*$1.*/\\1/p" "$work/out" | tail -n 1 | sed 's/^0*\(.\)/\1/;$!d' | grep . || echo -1; }
num_saves() { grep -c 'checkpoint .* is complete' "$work/out" || true; }

kills=0
: >"$work/out"
(start whole true) || fail "the run without kills failed"

said=0 in_save=0 resumed_at=-1
for ((kills = 1; kills <= times; ++kills)); do
  : >"$work/out"
  start killed $( ((kills % 2)) && echo true || echo false) &
  pid=$!
  # Waits until a save starts, then for a random time, which may last longer than the save.
  wanted=$((RANDOM % most_saves))
  while kill -0 "$pid" 2>/dev/null; do
    fresh=("$work"/killed/checkpoints/step_*.new)
    [[ -d ${fresh[0]} ]] && grep -q 'resume  ' "$work/out" && (($(num_saves) >= wanted)) && break
    nap 0.002
  done
  nap "$(printf '0.%04d' $((RANDOM % 400)))"
  fresh=("$work"/killed/checkpoints/step_*.new)
  [[ ! -d ${fresh[0]} ]] || in_save=$((in_save + 1))
  kill -KILL "$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null && fail "the run ended before it was killed"
  pid=
  resumed_at=$(last_number 'continuing from .* at rollout \([0-9]*\)')
  ((said == 0 || resumed_at >= said)) || fail "checkpoint $said was complete, but the run continued from $resumed_at"
  complete=$(last_number 'checkpoint .*step_\([0-9]*\) is complete')
  ((complete <= said)) || said=$complete
  ((said == 0)) || compgen -G "$work/killed/checkpoints/step_*/manifest.json" >/dev/null || fail "no complete checkpoint is left"
done
kills=$times
: >"$work/out"
(start killed true) || fail "the run cannot be continued to its end"

rows() { sed -E 's/, "(perf|sys)\/[^"]*": [^,}]*//g; s/, "wall_time": [^,}]*//' "$work/$1/metrics.jsonl"; }
cmp <(rows whole) <(rows killed) || fail "metrics.jsonl differs"
last=$(printf 'step_%06d' "$rollouts")
for file in "$work/whole/checkpoints/$last"/shard-*; do cmp "$file" "$work/killed/checkpoints/$last/${file##*/}" || fail "the last checkpoint differs"; done
diff -r "$work/whole.hf" "$work/killed.hf" || fail "the export differs"
left=$(ls "$work/killed/checkpoints" | tr '\n' ' ')
[[ $left == "latest $(printf 'step_%06d' $((rollouts - 1))) $last " ]] || fail "checkpoints/ holds $left"
echo "kill_saves: $times kills, $in_save of them during a save; the last start continued from rollout $resumed_at; all $rollouts rollouts are equal byte for byte"
