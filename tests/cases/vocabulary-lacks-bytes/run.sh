# A byte-level vocabulary that lacks a byte loads with one warning; only a text that needs the byte is refused, with its
# line.
source "$(dirname "$0")/../lib.sh"
grep -q '"q": *113' model/tokenizer.json || wrong "no token to take out"
sed -i -E 's/"q": *113/"<|no q|>": 113/' model/tokenizer.json
train --set rollout.num_rollout=1 || wrong "texts without the byte: $(cat out)"
[ "$(grep -c 'lacks 1 of the bytes of UTF-8 text (0x71)' out)" = 1 ] || wrong "not named once: $(cat out)"
sed -i '3s/.*/{"prompt": "a question", "label": "1"}/' prompts.jsonl
rm -rf run
train && wrong "a text that needs the byte is taken"
grep -q '^error: the text has U+0071.* 0x71' out && grep -q 'prompts.jsonl:3$' out || wrong "$(cat out)"
