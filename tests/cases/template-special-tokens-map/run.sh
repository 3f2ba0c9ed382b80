# bos_token comes from special_tokens_map.json, which overrides tokenizer_config.json, for both forms of a token; it
# also works without that file.
source "$(dirname "$0")/../lib.sh"
printf '{{ bos_token }}{{ messages[0].content }}' >model/chat_template.jinja
printf '{"messages": [{"role": "user", "content": "hi"}]}\n' >row.jsonl
check() {
  timeout 60 "$B" tokenize --hf-checkpoint model --input row.jsonl --output out 2>err || wrong "$1: $(cat err)"
  grep -q "\"ids\":\[$2\]" out || wrong "$1: $(cat out), not $2"
}
printf '{"tokenizer_class": "PreTrainedTokenizerFast"}' >model/tokenizer_config.json
printf '{"bos_token": "<|system|>"}' >model/special_tokens_map.json
check "a text" 257,104,105
printf '{"bos_token": {"content": "<|system|>", "lstrip": false, "normalized": false, "rstrip": false, "single_word": false}}' >model/special_tokens_map.json
check "an object" 257,104,105
printf '{"bos_token": "<|user|>"}' >model/tokenizer_config.json
check "both files" 257,104,105
printf '{"bos_token": "<|user|>", "added_tokens_decoder": {}}' >model/tokenizer_config.json
check "a config with added tokens" 258,104,105
rm model/tokenizer_config.json
check "the map alone" 257,104,105
