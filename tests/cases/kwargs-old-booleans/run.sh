# no, off, 0x10 and .nan inside a JSON value are refused with the key; in quotes they are texts.
source "$(dirname "$0")/../lib.sh"
printf '{{ messages[0].content }}[{%% if enable_thinking is string %%}{{ enable_thinking }}{%% else %%}{{ enable_thinking is false }}{%% endif %%}]' >model/chat_template.jinja
dry() { train --dry-run --set data.apply_chat_template=true "data.apply_chat_template_kwargs={enable_thinking: $1}"; }
for value in no off No OFF on Yes y 0x10 .nan -.inf 1e999 010; do
  dry "$value" && wrong "$value is taken"
  grep -q "kwargs.enable_thinking: is \"$value\"" out || wrong "$value: $(cat out)"
done
dry false || wrong "false: $(cat out)"
grep -q '\[True\]' out || wrong "false is not false: $(cat out)"
dry '"no"' || wrong "\"no\": $(cat out)"
grep -q '\[no\]' out || wrong "\"no\" is not the text: $(cat out)"
