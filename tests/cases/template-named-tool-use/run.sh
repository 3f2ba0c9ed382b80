# Rows with tools, even an empty list, use the template named tool_use; other rows use the default. Both kinds of
# template files work.
source "$(dirname "$0")/../lib.sh"
render() {
  printf '{"messages": [{"role": "user", "content": "hi"}]%s}\n' "$1" >row.jsonl
  timeout 60 "$B" tokenize --hf-checkpoint model --input row.jsonl --output out 2>err || wrong "$1: $(cat err)"
  grep -q "\"text\":\"$2\"" out || wrong "$1: $(cat out), not $2"
}
tools=', "tools": [{"type": "function", "function": {"name": "f"}}]'
rm model/chat_template.jinja
printf '{"chat_template": [{"name": "tool_use", "template": "tools({{ tools | length }}):{{ messages[0].content }}"},
  {"name": "default", "template": "plain:{{ messages[0].content }}"}, {"name": "rag", "template": "rag:{{ documents | length }}"}]}' >model/tokenizer_config.json
render "$tools" 'tools(1):hi'
render ', "tools": []' 'tools(0):hi'
render ', "tools": null' 'plain:hi'
render '' 'plain:hi'
render ', "documents": [{"title": "a", "text": "b"}]' 'plain:hi'
render ', "documents": [{"title": "a", "text": "b"}], "chat_template": "rag"' 'rag:1'
printf 'own:{{ messages[0].content }}' >model/chat_template.jinja
render "$tools" 'own:hi'
mkdir model/additional_chat_templates
printf 'file({{ tools | length }})' >model/additional_chat_templates/tool_use.jinja
render "$tools" 'file(1)'
render '' 'own:hi'
