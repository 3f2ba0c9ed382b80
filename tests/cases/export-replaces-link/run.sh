#!/usr/bin/env bash
# If checkpoint.save_hf is a link to a folder (for example on a larger disk), the export goes into that folder and the
# link stays.
source "$(dirname "$0")/../lib.sh"
mkdir -p disk/big; ln -s "$T/disk/big" target; ln -s target again
train --set checkpoint.save_hf="$T/target" || wrong "$(tail -n 3 out)"
[[ -L target && -e disk/big/model.safetensors ]] || wrong "the link was replaced, or the folder behind it is empty"
rm -rf run; rm disk/big/model.safetensors; echo '{}' >disk/big/model.safetensors
train --set checkpoint.save_hf=again/ || wrong "an earlier export behind two links: $(tail -n 3 out)"
[[ -L target && -L again && $(stat -c %s disk/big/model.safetensors) -gt 1000 ]] || wrong "the second export is not there"
[[ $(ls disk) == big ]] || wrong "left behind: $(ls disk)"
rm -rf run; ln -s "$T/nowhere" dangling
train --set checkpoint.save_hf="$T/dangling" && wrong "a link that leads nowhere is accepted"
[[ -L dangling ]] || wrong "the link is gone"
