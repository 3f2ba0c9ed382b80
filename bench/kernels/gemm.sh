#!/usr/bin/env bash
# Builds the GEMM kernels with nvcc alone, checks them, then times them beside cuBLASLt and torch.
#   gemm.sh FOLDER      FOLDER receives the logs; every step has a time limit
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
build=$(mktemp -d)
flags=(-std=c++20 -O3 -lineinfo -gencode "arch=compute_90a,code=sm_90a" -Werror all-warnings
  -Iinclude -I.)
compile() { # KIND SOURCE FLAG...
  nvcc "${flags[@]}" "${@:3}" -c "$2" -o "$build/$1_$(basename "$2").o" || echo "failed: $2"
}
for source in kernels/gemm/*.{cpp,cu} kernels/gemm_backward/*.{cpp,cu}; do
  compile release "$source" -DNDEBUG &
  compile debug "$source" &
done
compile check tests/kernels/gemm_check.cu &
compile check tests/kernels/gemm_backward_check.cu &
compile bench bench/kernels/gemm_bench.cu &
compile bench bench/kernels/gemm_backward_bench.cu &
wait
for family in gemm gemm_backward; do
  nvcc "$build"/debug_*.o "$build/check_${family}_check.cu.o" -lcublasLt -o "$build/${family}_check" || exit
  nvcc "$build"/release_*.o "$build/bench_${family}_bench.cu.o" -lcublasLt -o "$build/${family}_bench" || exit
done

combine() { # ROWS LAYERS: every row count with every N K
  local m i layer=($2)
  for m in $1; do
    for ((i = 0; i < ${#layer[@]}; i += 2)); do echo "$m ${layer[i]} ${layer[i + 1]}"; done
  done
}
layers="6144 4096 4096 4096 24576 4096 4096 12288 6144 2560 2560 4096 19456 2560 2560 9728
  4608 4096 27392 4096 4096 13696 5120 12288"
rows="1 8 16 32 64 96 128 192 256 384 512 1024 2048 8192"
heads="151936 4096 151936 2560 151552 4096"
head_rows="1 8 32 64 128 256 512 2048"

timeout 15 "$build/gemm_check" --small
[ $? -eq 124 ] && exit 1  # hung
for family in gemm gemm_backward; do
  timeout 40 "$build/${family}_check" >"$out/${family}_check.txt" 2>&1
  tail -25 "$out/${family}_check.txt"
done
read -ra products <<<"$(combine "$rows" "$layers" | tr '\n' ' ')"
read -ra logits <<<"$(combine "$head_rows" "$heads" | tr '\n' ' ')"
timeout 90 "$build/gemm_bench" pair "${products[@]}" f32 "${logits[@]}" >"$out/pair.txt"
timeout 40 "$build/gemm_backward_bench" 8192 6144 4096 8192 4096 4096 8192 24576 4096 8192 4096 12288 \
  >"$out/backward.txt"
timeout 60 python3 bench/peers/gemm.py "${products[@]}" >"$out/torch.txt"
for family in gemm gemm_backward; do
  timeout 40 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/${family}_check" --small \
    >"$out/${family}_memcheck.txt" 2>&1
  tail -4 "$out/${family}_memcheck.txt"
done
grep ratio "$out/pair.txt"
cat "$out/backward.txt"
