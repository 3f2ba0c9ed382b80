#!/usr/bin/env bash
# A rollout dump records its sampling temperature. Training at another is refused, because the log-probs would be those
# of another policy.
source "$(dirname "$0")/../lib.sh"
train --set rollout.num_rollout=1 rollout.rollout_temperature=0.7 debug.save_rollout="$T/dump" || wrong "$(tail -3 out)"
[[ $(values dump/rollout_000000.jsonl temperature | sort -u) == 0.7 ]] || wrong "the dump does not say its temperature"
rm -rf run
train --set debug.load_rollout="$T/dump" && wrong "a dump of temperature 0.7 is trained at 1"
grep -q 'set rollout.rollout_temperature to 0.7' out || wrong "$(tail -4 out)"
rm -rf run
train --set debug.load_rollout="$T/dump" rollout.rollout_temperature=0.7 || wrong "$(tail -4 out)"
[[ $(values run/metrics.jsonl train/mismatch_tokens) == 0 ]] || wrong "log-probs differ: $(values run/metrics.jsonl train/mismatch_tokens)"
grep -q prefix_cache_hit_rate run/metrics.jsonl && wrong "the row of a dump has a hit rate of the engine's cache"
sed -i 's/, *"temperature": *[0-9.]*//; s/"temperature": *[0-9.]*, *//' dump/*
rm -rf run
train --set debug.load_rollout="$T/dump" rollout.rollout_temperature=0.8 || wrong "an older dump: $(tail -4 out)"
