#!/usr/bin/env bash
# Runs compute-sanitizer on the programs that check the CUDA kernels: memcheck on their `small` cases, racecheck on
# their `tiny` cases (tests/kernels/check_size.h). Needs a GPU. Prints one line per program and tool; exits 1 on any
# report, failure or timeout.
#
#   scripts/sanitize_cuda.sh [--no-build] [PROGRAM ...]       e.g. gemm_check; default: all of them
#
# Builds the preset `racecheck` (SLX_KERNEL_RACECHECK), or uses the existing build. SLX_SANITIZE_LOGS: folder for the
# reports (build/racecheck/sanitize); SLX_SANITIZE_LIMIT: seconds per run (300); SLX_JOBS: runs at a time (4).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
build=build/racecheck
logs=${SLX_SANITIZE_LOGS:-$build/sanitize}
limit=${SLX_SANITIZE_LIMIT:-300}

to_build=1
if [[ ${1:-} == --no-build ]]; then
  to_build=0
  shift
fi
programs=("$@")
if [[ ${#programs[@]} -eq 0 ]]; then
  for source in tests/kernels/*_check.cu tests/kernels/*/*_check.cu; do programs+=("$(basename "$source" .cu)"); done
fi
sanitizer=$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)
[[ -x $sanitizer ]] || { echo "sanitize_cuda.sh: compute-sanitizer is missing; the CUDA toolkit has it" >&2; exit 2; }
if ((to_build)); then
  nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
  cmake --preset racecheck -DCMAKE_CUDA_COMPILER="$nvcc" >/dev/null || exit 2
  cmake --build --preset racecheck -j "$(nproc)" --target "${programs[@]}" || exit 2
fi
mkdir -p "$logs"

# Whether all reports are about kernels of cuBLASLt. These are not ours to fix; their results are checked anyway.
is_foreign() {
  local all ours
  all=$(sed -n 's/^.*RACECHECK SUMMARY: \([0-9]*\) hazards.*/\1/p' "$1")
  ours=$(grep -E '^=+ (Error|Warning): |^=+ +and ' "$1" | grep -cv ' access at nvjet_sm90_')
  [[ -n $all && $ours -eq 0 && $all -eq $(grep -cE '^=+ (Error|Warning): ' "$1") ]]
}

# check TOOL PROGRAM SIZE: fails if the program or the tool reports an error.
check() {
  local tool=$1 program=$2 size=$3 log=$logs/$2.$1.txt start=$SECONDS rc=0
  timeout -k 10 "$limit" "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$build/tests/kernels/$program" "$size" >"$log" 2>&1 || rc=$?
  local verdict="clean" said summary
  said=$(grep -v '^=' "$log" | tail -1)
  summary=$(sed -n 's/^=* *\(.*SUMMARY: .*\)/\1/p' "$log")
  if ((rc == 124 || rc == 137)); then
    verdict="FAILED: stopped after $limit s"
  elif [[ $said != *" 0 failures" && $said != *" 0 mismatches" ]]; then
    verdict="FAILED: exit $rc"
  elif [[ $tool == racecheck && $rc -eq 9 ]] && is_foreign "$log"; then
    verdict="clean except for cuBLASLt's own kernels"
  elif ((rc != 0)) || [[ $summary != *"SUMMARY: 0 "* ]]; then
    verdict="FAILED: exit $rc"
  fi
  printf '%-9s %-24s %-5s %3d s  %s; %s; %s\n' "$tool" "$program" "$size" $((SECONDS - start)) "$verdict" "$said" "$summary" |
    tee "$log.line"
}

rm -f "$logs"/*.line
for program in "${programs[@]}"; do
  for run in "racecheck tiny" "memcheck small"; do
    while (($(jobs -rp | wc -l) >= ${SLX_JOBS:-4})); do wait -n; done
    check "${run% *}" "$program" "${run#* }" &
  done
done
wait
failed=$(cat "$logs"/*.line | grep -c FAILED)
echo "sanitize_cuda.sh: $(cat "$logs"/*.line | wc -l) runs, $failed of them failed; reports in $logs"
((failed == 0))
