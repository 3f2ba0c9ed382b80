#!/usr/bin/env bash
# Kills (SIGKILL) or stops (SIGSTOP) one rank of a small training run in each phase. Checks that all processes of the
# run are gone within ten seconds, that status.json names the rank, its host and its phase, and that only one rank
# reports the failure. Needs mpirun, and perl for a slow reward service.
#
#   scripts/kill_ranks.sh                 every phase and both signals once
#   scripts/kill_ranks.sh --times 10      ten times each
#   scripts/kill_ranks.sh --quick         every phase once, with alternating signals, and a shorter
#                                         limit for stopped ranks
#   --ranks N         processes, an even number (default 2)
#   --grid tp|pp      pairs of ranks are tensor parallel (default) or pipeline stages
#   --phases "A B"    any of: load_model generate reward log_probs forward backward optimizer update_weights
#                     save_model export (default: the first eight, and save_model)
#   --slimexx PATH    default: the last program built
#   --keep            keeps the runs
#
# Phases are short: if the rank enters the next phase before the signal arrives, all checks except the phase's name
# count, and the phase is tried again. Status 1 if any check fails.
set -euo pipefail
cd "$(dirname "$0")/.."

times=1 ranks=2 grid=tp quick=false keep=false limits=()
phases="load_model generate reward log_probs forward backward optimizer update_weights save_model"
slimexx=$(ls -t build/*/slimexx 2>/dev/null | head -n 1 || true)
while [[ $# -gt 0 ]]; do
  case $1 in
    --times) times=${2:?} ; shift ;;
    --ranks) ranks=${2:?} ; shift ;;
    --grid) grid=${2:?} ; shift ;;
    --phases) phases=${2:?} ; shift ;;
    --slimexx) slimexx=${2:?} ; shift ;;
    --quick) quick=true limits=(parallel.rank_silence_warn_s=1 parallel.rank_silence_limit_s=2) ;;
    --keep) keep=true ;;
    *) sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; [[ $1 == --help || $1 == -h ]] && exit 0; exit 2 ;;
  esac
  shift
done
[[ -x $slimexx ]] || { echo "kill_ranks: no program at '$slimexx': build it first, or give its path with --slimexx" >&2; exit 2; }
command -v mpirun >/dev/null || { echo "kill_ranks: mpirun is missing" >&2; exit 2; }
[[ $phases != *reward* ]] || command -v perl >/dev/null || { echo "kill_ranks: the phase reward needs perl, which is missing" >&2; exit 2; }

most_seconds=10 most_tries=20
work=$(mktemp -d "${TMPDIR:-/tmp}/slx_kill_XXXXXX")
server= launcher=
clean_up() {
  local pid
  for pid in $server $launcher; do kill "$pid" 2>/dev/null || true; done
  [[ -z $launcher ]] || wait "$launcher" 2>/dev/null || true
  if $keep; then echo "kill_ranks: the runs are in $work"; else rm -rf "$work"; fi
}
trap clean_up EXIT

# The model is large for so few tokens, because every phase must last long enough to be hit.
cat >"$work/config.json" <<END
{"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "dtype": "float32", "vocab_size": 320,
 "hidden_size": 512, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 64,
 "intermediate_size": 1536, "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
 "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}, "hidden_act": "silu", "initializer_range": 0.05,
 "eos_token_id": 256}
END
"$slimexx" init --model-config "$work/config.json" --tokenizer byte-level --seed 1 --save "$work/model" >/dev/null 2>&1
for i in 1 2 3 4; do printf '{"prompt": "%d + 1 =", "label": "%d"}\n' "$i" $((i + 1)); done >"$work/prompts.jsonl"

rm_type=random rm_url=
if [[ $phases == *reward* ]]; then
  perl -MIO::Socket::INET - "$work/port" 2>/dev/null <<'END' &
my $server = IO::Socket::INET->new(Listen => 64, LocalAddr => "127.0.0.1") or die;
open(my $file, ">", "$ARGV[0].new") or die;
print $file $server->sockport;
close $file;
rename "$ARGV[0].new", $ARGV[0];
$SIG{CHLD} = "IGNORE";
while (1) {
  my $client = $server->accept or next;
  next if fork;
  my $length = 0;
  while (my $line = <$client>) {
    $length = $1 if $line =~ /^content-length: *(\d+)/i;
    last if $line =~ /^\r?$/;
  }
  read $client, my $question, $length;
  select undef, undef, undef, 0.3;
  print $client "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nConnection: close\r\n\r\n", int rand 2;
  exit;
}
END
  server=$!
  for _ in {1..200}; do [[ -f $work/port ]] && break; sleep 0.05; done
  rm_type=remote rm_url=http://127.0.0.1:$(<"$work/port")
  unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY all_proxy ALL_PROXY
fi

sizes=(parallel.tensor_model_parallel_size=2)
[[ $grid == pp ]] && sizes=(parallel.pipeline_model_parallel_size=2)
launch=(mpirun --oversubscribe -np "$ranks")
((EUID == 0)) && launch+=(--allow-run-as-root)

start_run() {  # folder, phase
  local rollouts=100000
  [[ $2 == export ]] && rollouts=1
  mkdir -p "$1.tmp"
  OMPI_MCA_orte_tmpdir_base=$1.tmp "${launch[@]}" "$slimexx" train --set \
    observe.run_dir="$1" observe.tensorboard=false observe.log_samples_interval=0 observe.samples_interval=0 \
    model.hf_checkpoint="$work/model" data.prompt_data="$work/prompts.jsonl" \
    rollout.num_rollout=$rollouts rollout.rollout_batch_size=4 rollout.n_samples_per_prompt=2 rollout.rollout_max_response_len=16 \
    rollout.kv_cache_gib=0.05 reward.rm_type=$rm_type ${rm_url:+reward.rm_url=$rm_url} reward.rm_max_connections=2 \
    train.num_steps_per_rollout=2 train.max_tokens_per_gpu=32 numerics.recompute_old_log_probs=true optimizer.lr=1e-4 \
    checkpoint.save_interval=1 checkpoint.async_save=false checkpoint.keep_last=1 \
    "${sizes[@]}" ${limits[@]+"${limits[@]}"} $([[ $2 == export ]] && echo "checkpoint.save_hf=$1.hf") \
    >"$1.out" 2>&1 </dev/null &
  launcher=$!
}

# Finds the process ids of the ranks. This starts programs and takes longer than some phases last, so call it
# before waiting for the phase. False while a rank is missing.
find_ranks() {
  local pid word
  pids=()
  for pid in $(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null); do
    word=$({ tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^OMPI_COMM_WORLD_RANK=//p'; } 2>/dev/null) || true
    [[ -n $word ]] && pids[word]=$pid
  done
  ((${#pids[@]} == ranks))
}

# Sleeps for some milliseconds without starting a program.
exec {nothing}<> <(:)
nap() { read -rt "$1" -u "$nothing" || true; }

# Whether the rank has the model's file open. Ranks write no records at the start, so this detects the phase load_model.
reads_model() {  # rank
  local descriptor
  for descriptor in "/proc/${pids[$1]}/fd/"*; do
    [[ $descriptor -ef $work/model/model.safetensors ]] && return 0
  done
  return 1
}

# Waits until the rank is in the phase.
wait_for_phase() {  # folder, phase, rank
  local record text end=$((SECONDS + 60))
  printf -v record '%s/ranks/rank_%03d' "$1" "$3"
  until find_ranks; do
    kill -0 "$launcher" 2>/dev/null && ((SECONDS < end)) || return 1
    nap 0.01
  done
  while kill -0 "$launcher" 2>/dev/null && ((SECONDS < end)); do
    if [[ $2 == load_model ]]; then
      reads_model "$3" && return 0
    elif [[ -f $record ]] && { read -r text <"$record"; } 2>/dev/null && [[ $text == *"\"phase\":\"$2\""* ]]; then
      return 0
    fi
    nap 0.002
  done
  return 1
}

fault() { echo "FAULT $phase $signal rank $victim: $1" | tee -a "$work/faults" >&2; sed 's/^/    /' "$run.out" | tail -n 40 >&2; }
value_of() { sed -n "s/^ *\"$1\": \"\{0,1\}\(.*[^,\"]\)\"\{0,1\},\{0,1\}$/\1/p" "$run/status.json" | tail -n 1; }

# Lists the launcher and the ranks that still run; zombies do not count. False if there are none.
list_living() {
  local pid state
  living=
  for pid in "$launcher" "${pids[@]}"; do
    state=$(sed -n 's/^State:\t\([A-Z]\).*/\1/p' "/proc/$pid/status" 2>/dev/null || true)
    [[ -z $state || $state == Z ]] || living+=" $pid"
  done
  [[ -n $living ]]
}

# Makes one run. Sets `took` and `is_hit`.
try_once() {
  run=$work/run_$((++num_runs)) is_hit=false took=
  start_run "$run" "$phase"
  if ! wait_for_phase "$run" "$phase" "$victim"; then
    fault "the run did not reach the phase"
    kill -KILL "$launcher" 2>/dev/null || true
    wait "$launcher" 2>/dev/null || true
    return 0
  fi
  local before=$EPOCHREALTIME after
  kill -"$signal" "${pids[victim]}"
  local end=$((SECONDS + 30))
  while list_living && ((SECONDS < end)); do sleep 0.02; done
  after=$EPOCHREALTIME
  took=$(awk -v a="$after" -v b="$before" 'BEGIN { printf "%.2f", a - b }')
  if list_living; then
    fault "after 30 s these processes still run:$living"
    kill -KILL $living 2>/dev/null || true
  fi
  wait "$launcher" 2>/dev/null && fault "mpirun ended with status 0"
  awk -v t="$took" -v m="$most_seconds" 'BEGIN { exit !(t > m) }' && fault "the processes ended after $took s (limit: $most_seconds s)"
  launcher=
  check_status
  $keep || rm -rf "$run" "$run.tmp" "$run.hf"
}

check_status() {
  local said named
  [[ -f $run/status.json ]] || { fault "no status.json"; return 0; }
  [[ $(value_of state) == failed ]] || fault "status.json: state $(value_of state), not failed"
  [[ $(value_of rank) == "$victim" ]] || fault "status.json names rank $(value_of rank), not $victim"
  [[ $(value_of host) == "$(uname -n)" ]] || fault "status.json names host $(value_of host), not $(uname -n)"
  local word=died
  [[ $signal == STOP ]] && word="has been stopped"
  [[ $(value_of error) == "rank $victim $word"*"phase $(value_of phase), in "* ]] || fault "status.json: error $(value_of error)"
  said=$(grep -c "\[error\].*rank $victim $word\|error:.*rank $victim $word" "$run.out" || true)
  [[ $said == 1 ]] || fault "the error is reported $said times, not once"
  named=$(value_of phase)
  call=$(value_of call)
  [[ $named == "$phase" ]] && is_hit=true
  return 0
}

num_runs=0
: >"$work/faults"
printf '%-15s %-6s %5s %7s %9s %9s  %s\n' phase signal times others mean_s most_s calls
turn=0
for phase in $phases; do
  turn=$((turn + 1))
  signals="KILL STOP"
  $quick && signals=$( ((turn % 2)) && echo KILL || echo STOP)
  for signal in $signals; do
    hits=0 others=0 all_took="" calls=""
    while ((hits < times && others < most_tries + times)); do
      victim=$(((hits + others + turn) % ranks))
      try_once
      [[ -n $took ]] || break
      all_took+="$took "
      if $is_hit; then
        hits=$((hits + 1))
        calls+="$call "
      else
        others=$((others + 1))
      fi
    done
    ((hits == times)) || fault "the phase was hit $hits of $times times in $((hits + others)) runs"
    calls=$(tr ' ' '\n' <<<"$calls" | sed '/^$/d' | sort | uniq -c | awk '{ printf "%s%s x %s", (NR == 1 ? "" : ", "), $1, $2 }')
    awk -v p="$phase" -v s="$signal" -v h="$hits" -v o="$others" -v c="$calls" \
      '{ for (i = 1; i <= NF; ++i) { sum += $i; if ($i > most) most = $i } printf "%-15s %-6s %5d %7d %9.2f %9.2f  %s\n", p, s, h, o, (NF ? sum / NF : 0), most, c }' \
      <<<"$all_took"
  done
done
num_faults=$(wc -l <"$work/faults")
echo "kill_ranks: $num_runs runs of $ranks ranks ($grid), $num_faults faults"
((num_faults == 0))
