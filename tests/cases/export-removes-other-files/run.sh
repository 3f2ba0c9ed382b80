#!/usr/bin/env bash
# An earlier export is replaced. A folder with anything else, or with another model, is refused at the start and stays
# unchanged.
source "$(dirname "$0")/../lib.sh"
train --set rollout.num_rollout=1 checkpoint.save_hf="$T/good" || wrong "$(tail -n 3 out)"
cp -r good first; rm -rf run
train --set rollout.num_rollout=2 checkpoint.save_hf="$T/good" || wrong "an earlier export is refused: $(tail -n 3 out)"
cmp -s good/model.safetensors first/model.safetensors && wrong "the earlier export was not replaced"
[[ $(ls) != *good.* ]] || wrong "left behind: $(ls)"
rm -rf run
refused() {
  local before; before=$(cd target && find . -type f -exec cksum {} + | sort)
  train --set checkpoint.save_hf="$T/target" && wrong "$1: accepted"
  [[ $(cd target && find . -type f -exec cksum {} + | sort) == "$before" ]] || wrong "$1: the folder was changed"
  grep -q 'the export folder' out || wrong "$1: $(tail -n 3 out)"
  [[ ! -e run ]] || wrong "$1: a refused start left its run folder"
  rm -rf target
}
for name in notes.md adapter.bin adapter_model.safetensors model-1-of-2.safetensors optimizer.pt .gitattributes training_args.json latest model.safetensors.bak; do
  cp -r good target; echo precious >"target/$name"; refused "$name"
done
cp -r good target; mkdir target/checkpoint-1; echo precious >target/checkpoint-1/x; refused "a folder"
cp -r good target; mkdir target/empty; refused "an empty folder"
cp -r good target; rm target/tokenizer.json; ln -s "$T/model/tokenizer.json" target/tokenizer.json; refused "a link"
mkdir target; cp good/model.safetensors target; refused "weights alone"
mkdir target; echo precious >target/tokenizer.json; refused "a tokenizer alone"
sed -i 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' config.json; make_model target; refused "another model"
mkdir target; cp good/* target; mkdir target.new; echo precious >target.new/x
train --set checkpoint.save_hf="$T/target" && wrong "target.new: accepted"
[[ -e target.new/x ]] || wrong "target.new/x is gone"
