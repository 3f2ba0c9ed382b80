#!/usr/bin/env bash
# The prefix boxed_ is refused for graders that look for marks outside the box: as a key, as a flag, in a row.
source "$(dirname "$0")/../lib.sh"
for name in deepscaler dapo; do
  "$B" grade --rm-type boxed_$name --input "$CASE/cases.jsonl" --output rewards 2>log && wrong "boxed_$name is taken"
  grep -q "no response can be right" log || wrong "boxed_$name: $(cat log)"
  train --dry-run --set reward.rm_type=boxed_$name && wrong "train takes boxed_$name"
  grep -q "no response can be right" out || wrong "train, boxed_$name: $(cat out)"
done
printf '{"prompt": "1", "label": "1"}\n{"prompt": "2", "label": "2", "rm_type": "boxed_dapo"}\n' >prompts.jsonl
train --dry-run --set reward.rm_type=math && wrong "a row may name boxed_dapo"
grep -q "prompts.jsonl:2" out || wrong "no line: $(cat out)"
