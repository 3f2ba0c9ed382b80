#!/usr/bin/env bash
# Trains small models of every family on grids of ranks, as threads of one process, and compares each with one rank:
# log-probs and entropies to the bit, gradients and their norm within 1e-6 (a single tensor within 1e-5), weights after
# three steps.
#
#   scripts/parity.sh                        the grids of the test suite
#   scripts/parity.sh --random 20 --seed 7   and twenty random legal grids
#
# Builds into build/cpu. Prints one line per random grid; exits 1 if any comparison failed.
set -euo pipefail
cd "$(dirname "$0")/.."
grids=5
seed=1
while [[ $# -gt 0 ]]; do
  case $1 in
    --random) grids=${2:?--random needs a number}; shift 2 ;;
    --seed) seed=${2:?--seed needs a number}; shift 2 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "scripts/parity.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
done
scripts/install_deps.sh
cmake --preset cpu >/dev/null
cmake --build --preset cpu --target tests_train -j "${SLX_JOBS:-$(nproc)}"
SLX_GRIDS=$grids SLX_GRID_SEED=$seed build/cpu/tests/train/tests_train --gtest_brief=1 \
  --gtest_filter='Grid*:*TensorParallel*:*Pipeline*:ContextParallel*:*ExpertGrid*'
