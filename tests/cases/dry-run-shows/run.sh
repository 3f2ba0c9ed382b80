# Output for people: the first prompt in a dry run; the loss of supervised training on the console, and its summary; a
# run that is already done.
source "$(dirname "$0")/../lib.sh"
train --dry-run || wrong "$(cat out)"
grep -A1 'the first prompt, 7 tokens, label "2"' out | grep -q '^    1 + 1 =$' || wrong "no prompt is shown: $(cat out)"
sed 's/"label"/"response"/' prompts.jsonl >pairs.jsonl
sft="train.loss_type=sft train.global_batch_size=4 data.prompt_data=$T/pairs.jsonl rollout.num_rollout=8 checkpoint.save_interval=4 checkpoint.keep_last=0"
train --set $sft || wrong "$(cat out)"
grep -qE '^ +step +loss +len +H' out || wrong "the columns of supervised training: $(cat out)"
grep -qE '^ +step.*(reward|ref_kl|gen s)' out && wrong "columns that are empty: $(grep -m1 step out)"
grep -q 'loss by step' out && grep -qE 'loss [0-9.]+ at the start, [0-9.]+ at the end' out || wrong "no summary: $(cat out)"
train --set $sft --resume || wrong "$(cat out)"
grep -q '8 of 8 rollouts are done' out || wrong "a run that is done says nothing: $(cat out)"
# One byte of the newest checkpoint is flipped: the error names the older checkpoint that is intact.
file=$(ls run/checkpoints/step_000008/*.safetensors | head -1)
at=$(($(stat -c %s "$file") - 9))
byte=$(dd if="$file" bs=1 skip=$at count=1 2>/dev/null | od -An -tu1)
printf "\\x$(printf %x $((byte ^ 1)))" | dd of="$file" bs=1 seek=$at conv=notrunc 2>/dev/null
train --set $sft --resume && wrong "a damaged checkpoint is taken"
grep -q 'an earlier checkpoint is complete: --resume .*step_000004' out || wrong "$(cat out)"
train --set $sft observe.run_dir=other --resume run && wrong "a run folder is taken for checkpoints"
grep -q 'run/checkpoints' out || wrong "the folder of checkpoints is not named: $(cat out)"
