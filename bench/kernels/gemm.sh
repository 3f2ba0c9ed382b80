#!/usr/bin/env bash
# Builds the GEMM kernels with only nvcc, checks them, then compares their times with cuBLASLt and torch.
#   gemm.sh FOLDER [short]   FOLDER receives the logs; every step has a time limit. `short`: the
#                            small checks and two models' shapes at four numbers of rows
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:?"usage: gemm.sh FOLDER [short]"}
short=${2:-}
mkdir -p "$out"
out=$(cd "$out" && pwd)
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
nvcc=$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)
flags=(-std=c++20 -O3 -lineinfo -gencode "arch=compute_90a,code=sm_90a" -Werror all-warnings
  -Iinclude -I.)
compile() { # KIND SOURCE FLAG...
  local object="$build/$1_${2//\//_}.o"
  "$nvcc" "${flags[@]}" "${@:3}" -c "$2" -o "$object" || echo "failed: $2"
}
for source in kernels/gemm/*.{cpp,cu} kernels/gemm_backward/*.{cpp,cu}; do
  compile release "$source" -DNDEBUG &
  compile debug "$source" &
done
for family in gemm gemm_backward; do
  compile check "tests/kernels/${family}_check.cu" &
  compile bench "bench/kernels/${family}_bench.cu" &
done
wait
for family in gemm gemm_backward; do
  "$nvcc" "$build"/debug_*.o "$build/check_tests_kernels_${family}_check.cu.o" -lcublasLt \
    -o "$build/${family}_check" || exit
  "$nvcc" "$build"/release_*.o "$build/bench_bench_kernels_${family}_bench.cu.o" -lcublasLt \
    -o "$build/${family}_bench" || exit
done
echo "built after $SECONDS s"

combine() { # ROWS LAYERS: every row count with every N K
  local m i layer=($2)
  for m in $1; do
    for ((i = 0; i < ${#layer[@]}; i += 2)); do echo "$m ${layer[i]} ${layer[i + 1]}"; done
  done
}
run() { # NAME SECONDS COMMAND...
  timeout "$2" "${@:3}" >"$out/$1.txt" 2>&1 || echo "$1: exit $?"
}
layers="6144 4096 4096 4096 24576 4096 4096 12288 6144 2560 2560 4096 19456 2560 2560 9728
  4608 4096 27392 4096 4096 13696 5120 12288"
rows="1 8 16 32 64 96 128 192 256 384 512 1024 2048 8192"
heads="151936 4096 151936 2560 151552 4096"
head_rows="1 8 32 64 128 256 512 2048"
size=()
if [[ -n $short ]]; then
  layers="6144 4096 4096 4096 24576 4096 4096 12288 6144 2560 19456 2560 2560 9728"
  rows="1 64 256 8192"
  heads="151936 4096"
  head_rows="64 256"
  size=(small)
fi
read -ra products <<<"$(combine "$rows" "$layers" | tr '\n' ' ')"
read -ra logits <<<"$(combine "$head_rows" "$heads" | tr '\n' ' ')"
read -ra gradients <<<"$(combine 8192 "6144 4096 4096 4096 24576 4096 4096 12288" | tr '\n' ' ')"

timeout 15 "$build/gemm_check" small
[ $? -eq 124 ] && exit 1  # hung
for family in gemm gemm_backward; do
  run "${family}_check" 90 "$build/${family}_check" "${size[@]}"
  tail -25 "$out/${family}_check.txt"
done
run pair 180 "$build/gemm_bench" pair "${products[@]}" f32 "${logits[@]}"
run backward 60 "$build/gemm_backward_bench" "${gradients[@]}"
run torch 180 python3 bench/peers/gemm.py "${products[@]}"
for family in gemm gemm_backward; do
  run "${family}_memcheck" 60 compute-sanitizer --tool memcheck --error-exitcode 9 \
    "$build/${family}_check" small
  tail -2 "$out/${family}_memcheck.txt"
done
grep ratio "$out/pair.txt"
cat "$out/backward.txt"
# torch's time over ours, for shapes that both timed
awk '$1 == "torch" { torch[$2 " " $3 " " $4] = $5 } $1 == "ours" { ours[$2 " " $3 " " $4] = $6 }
  END { for (s in torch) if (s in ours) printf "torch / ours %s: %.3f\n", s, torch[s] / ours[s] }' \
  "$out/torch.txt" "$out/pair.txt" | sort -t' ' -k4n -k5n -k6n
