#!/usr/bin/env bash
# A pattern that would backtrack forever is refused with its key.
source "$(dirname "$0")/../lib.sh"
for pattern in '(.*)*x!' '(.|.)*$1' '(\w+\.?)+!' '.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*.*!'; do
  train --set "train.freeze_params_name_list=['$pattern']"; rc=$?
  [[ $rc == 2 ]] && grep -q 'train.freeze_params_name_list' out || wrong "$pattern: status $rc: $(tail -n 2 out)"
done
