# A supervised row that teaches to end at once is refused with its line: an empty response, an empty turn, or one empty
# turn of several.
source "$(dirname "$0")/../lib.sh"
refused() {
  printf '%s\n%s\n' "$2" "$3" >data.jsonl
  train --dry-run --set train.loss_type=sft train.num_steps_per_rollout=1 data.prompt_data="$T/data.jsonl" data.apply_chat_template="$1" && wrong "$3 is taken"
  grep -q 'nothing to learn in the row' out && grep -q 'data.jsonl:2$' out || wrong "$3: $(cat out)"
}
refused false '{"prompt": "1+1=", "response": "2"}' '{"prompt": "1+1=", "response": ""}'
refused false '{"prompt": "1+1=", "response": "2"}' '{"prompt": "1+1=", "response": "<|endoftext|>"}'
good='{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}'
refused true "$good" '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}]}'
refused true "$good" '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'
printf '%s\n' "$good" >data.jsonl
train --dry-run --set train.loss_type=sft train.num_steps_per_rollout=1 train.global_batch_size=1 data.prompt_data="$T/data.jsonl" data.apply_chat_template=true || wrong "$(cat out)"
grep -q '⟦yo<|endoftext|>⟧' out || wrong "the dry run does not mark what is learnt: $(cat out)"
