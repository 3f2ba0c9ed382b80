#!/usr/bin/env bash
# Builds the libFuzzer targets under ASan and UBSan, and runs them on their corpora.
#
#   scripts/fuzz.sh [SECONDS] [TARGET ...]   each target (default: all) for SECONDS (default 60)
#   scripts/fuzz.sh -j N ...                 N targets at a time (default 1)
#   scripts/fuzz.sh --keep [TARGET ...]      adds to tests/fuzz/corpus the few found inputs that
#                                            reach new code, so that they can be committed
#
# New inputs go to build/fuzz/corpus, crashing ones to build/fuzz/artifacts; status 1 if there is a crash.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=60 jobs=1 keep=false
targets=()
while [[ $# -gt 0 ]]; do
  case $1 in
    -j) jobs=${2:?-j needs a number}; shift ;;
    --keep) keep=true ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "$0"; exit 0 ;;
    -*) echo "scripts/fuzz.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
    *[!0-9]*) targets+=("${1#fuzz_}") ;;
    *) seconds=$1 ;;
  esac
  shift
done
known=$(sed -n 's/^slx_add_fuzz_target(\([a-z_]*\) .*/\1/p' tests/fuzz/CMakeLists.txt)
[[ ${#targets[@]} -gt 0 ]] || mapfile -t targets <<<"$known"
for target in "${targets[@]}"; do
  grep -qx "$target" <<<"$known" || { echo "scripts/fuzz.sh: unknown target $target; the targets are:" $known >&2; exit 2; }
done

scripts/install_deps.sh --dev
CXX=$(scripts/find_clang.sh) cmake --preset fuzz >/dev/null
nice cmake --build --preset fuzz -j "${SLX_JOBS:-$(nproc)}" --target "${targets[@]/#/fuzz_}"
mkdir -p build/fuzz/artifacts

run_target() {
  local target=$1 folder=build/fuzz/corpus/$1 dictionary=tests/fuzz/dictionaries/$1.dict
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1
    -artifact_prefix="build/fuzz/artifacts/$target-")
  [[ -f $dictionary ]] && options+=(-dict="$dictionary")
  mkdir -p "$folder"
  if nice -n 19 "build/fuzz/tests/fuzz/fuzz_$target" "${options[@]}" "$folder" \
    "tests/fuzz/corpus/$target" >"build/fuzz/$target.log" 2>&1; then
    echo "fuzz: $target clean: $(grep -E 'DONE|number_of_executed' "build/fuzz/$target.log" | tr -s ' \n' ' ')"
  else
    echo "fuzz: $target FAILED, see build/fuzz/$target.log:"
    grep -E 'ERROR|SUMMARY|violated|Test unit written' "build/fuzz/$target.log" || tail -n 5 "build/fuzz/$target.log"
    return 1
  fi
}

# Only new edges count (-use_counters=0): with loop counts, thousands of inputs would be kept.
keep_found() {
  local target=$1 corpus=tests/fuzz/corpus/$1
  mkdir -p "build/fuzz/corpus/$target"
  nice -n 19 "build/fuzz/tests/fuzz/fuzz_$target" -set_cover_merge=1 -use_counters=0 -timeout=10 \
    -rss_limit_mb=2048 "$corpus" "build/fuzz/corpus/$target" >"build/fuzz/$target-merge.log" 2>&1
  echo "fuzz: $corpus holds $(find "$corpus" -type f | wc -l) inputs, $(du -sb "$corpus" | cut -f1) bytes"
}

failed=0 running=0
for target in "${targets[@]}"; do
  if $keep; then
    keep_found "$target"
    continue
  fi
  if [[ $running -ge $jobs ]]; then
    wait -n || failed=1
    running=$((running - 1))
  fi
  run_target "$target" &
  running=$((running + 1))
done
while [[ $running -gt 0 ]]; do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
