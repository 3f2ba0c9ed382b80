#!/usr/bin/env bash
# Writes the quickstart's additions into DIR: train.jsonl and heldout.jsonl (all pairs of 0..99, 1 in 40 held out), and
# sft.jsonl (examples of the training pairs; every second answer is off by 1 or 10).
#   scripts/quickstart_data.sh DIR
set -euo pipefail
out=${1:?"usage: quickstart_data.sh DIR"}
mkdir -p "$out"
awk -v out="$out" 'BEGIN {
  split("1 -1 10 -10", off)
  for (a = 0; a < 100; a++) for (b = 0; b < 100; b++) {
    row = sprintf("{\"prompt\": \"%d+%d=\", \"label\": \"%d\"}", a, b, a + b)
    if ((a * 7919 + b * 104729 + a * b * 31) % 1000 < 25) { print row > (out "/heldout.jsonl"); continue }
    print row > (out "/train.jsonl")
    n++
    told = a + b
    mixed = (n * 40503 + int(n / 97) * 20011) % 65536
    if (int(mixed / 512) % 2) { told += off[1 + int(mixed / 8192) % 4]; if (told < 0) told = 1 - told }
    printf "{\"prompt\": \"%d+%d=\", \"response\": \"%d\"}\n", a, b, told > (out "/sft.jsonl")
  }
}'
