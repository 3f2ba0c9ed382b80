#!/usr/bin/env bash
# A run of several ranks removes only records of ranks from RUN/ranks.
source "$(dirname "$0")/../lib.sh"
mkdir -p run/ranks/sub run/ranks/rank_005; for f in sub/data table.csv rank_x rank_01 rank_0010.txt; do echo precious >run/ranks/$f; done
echo stale >run/ranks/rank_007
timeout -k 2 60 mpirun -np 2 --oversubscribe "$B" train --config run.yaml >out 2>&1 || wrong "$(tail -n 3 out)"
for f in sub/data table.csv rank_x rank_01 rank_0010.txt; do [[ -e run/ranks/$f ]] || wrong "run/ranks/$f is gone"; done
[[ -d run/ranks/rank_005 && ! -e run/ranks/rank_007 ]] || wrong "$(ls run/ranks)"
