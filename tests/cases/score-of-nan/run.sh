#!/usr/bin/env bash
# With weights whose activations overflow, score exits with the same status as generate and writes no null, even if only
# one row is affected.
source "$(dirname "$0")/../lib.sh"
# Fill all matrices of the first MLP with 3e38; the file's header has their offsets.
header=$(od -An -tu8 -N8 model/model.safetensors | tr -d ' ')
for name in gate_proj up_proj; do
  range=$(dd if=model/model.safetensors bs=1 skip=8 count="$header" 2>/dev/null | grep -o "\"model.layers.0.mlp.$name.weight\":{[^}]*}" | grep -o '"data_offsets":\[[0-9,]*' | grep -o '[0-9]*,[0-9]*')
  begin=${range%,*} end=${range#*,}
  [[ -n $range ]] || wrong "no $name in the model"
  for ((i = 0; i < (end - begin) / 4; i++)); do printf '\x7e\xb0\x61\x7f'; done |
    dd of=model/model.safetensors bs=65536 seek=$((8 + header + begin)) oflag=seek_bytes conv=notrunc 2>/dev/null
done
printf '%s\n' '{"tokens": [1, 2, 3, 4]}' '{"tokens": [5, 6, 7]}' >tokens.jsonl
timeout 30 "$B" score --hf-checkpoint model --input tokens.jsonl --output scores.jsonl 2>err; rc=$?
[[ $rc == 4 ]] || wrong "status $rc: $(cat scores.jsonl 2>/dev/null)"
grep -q 'row 0' err || wrong "the row is not named: $(cat err)"
[[ ! -e scores.jsonl ]] || ! grep -q null scores.jsonl || wrong "null is written"
