#!/usr/bin/env bash
# Builds the GEMM kernels with nvcc alone, checks them, then times them beside cuBLASLt and torch.
#   gemm.sh FOLDER      FOLDER receives the logs; every step has a time limit
set -uo pipefail
cd "$(dirname "$0")/../.."
out=$1
build=$(mktemp -d)
flags=(-std=c++20 -O3 -lineinfo -gencode "arch=compute_90a,code=sm_90a" -Werror all-warnings
  -Iinclude -I.)
kernels=(kernels/gemm/{choose,gemm}.cpp kernels/gemm/{plain,swapped,swapped_wide}.cu)
compile() { # KIND SOURCE FLAG...
  nvcc "${flags[@]}" "${@:3}" -x cu -c "$2" -o "$build/$1_$(basename "$2").o" || echo "failed: $2"
}
for source in "${kernels[@]}"; do
  compile release "$source" -DNDEBUG &
  compile debug "$source" &
done
compile debug tests/kernels/gemm_check.cu &
compile release bench/kernels/gemm_bench.cu &
wait
nvcc "$build"/debug_*.o -o "$build/gemm_check" || exit
nvcc "$build"/release_*.o -lcublasLt -o "$build/gemm_bench" || exit
cuobjdump -sass "$build/release_plain.cu.o" | grep -oE 'Function : \S+|USETMAXREG\S*|HGMMA|WARPGROUP.DEPBAR|MEMBAR\S*' |
  uniq -c >"$out/sass.txt"

large=(8192 4608 4096 8192 27392 4096 8192 4096 13696 8192 5120 12288)
small=()
for m in 1 8 16 32 64 128 256 512; do
  for nk in "4608 4096" "4096 4096" "27392 4096" "4096 13696" "5120 12288"; do small+=("$m" $nk); done
done
timeout 15 "$build/gemm_check" --small
[ $? -eq 124 ] && exit 1  # hung
timeout 20 "$build/gemm_check" >"$out/check.txt" 2>&1
tail -25 "$out/check.txt"
timeout 60 "$build/gemm_bench" sweep "${large[@]}" "${small[@]}" >"$out/sweep.txt"
timeout 20 "$build/gemm_bench" pair "${large[@]}" "${small[@]}" >"$out/pair.txt"
timeout 20 python3 bench/peers/gemm.py "${large[@]}" "${small[@]}" >"$out/torch.txt"
timeout 40 compute-sanitizer --tool memcheck --error-exitcode 9 "$build/gemm_check" --small \
  >"$out/memcheck.txt" 2>&1
tail -4 "$out/memcheck.txt"
grep ratio "$out/pair.txt"
