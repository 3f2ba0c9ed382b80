#!/usr/bin/env bash
# Times every kernel and its peer (cuBLASLt in the same program, PyTorch in the same run) on one Hopper GPU, then whole
# models with random weights. Needs build/cuda with -DSLX_BUILD_BENCH=ON, and python3 with torch for the peers.
#   bench/gpu.sh FOLDER [CONFIG_DIR ...]     logs; a CONFIG_DIR holds a config.json for model_bench
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:?"usage: gpu.sh FOLDER [CONFIG_DIR ...]"}
shift
mkdir -p "$out"
build=build/cuda/bench
has_torch=$(python3 -c 'import torch; print(torch.cuda.is_available())' 2>/dev/null || echo False)
[[ $has_torch == True ]] || echo "no PyTorch with CUDA: its times are left out"

# run NAME SECONDS COMMAND...: prints the last lines of the log. The whole log is in FOLDER.
run() {
  local name=$1 limit=$2
  shift 2
  echo "== $name"
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1 || echo "failed ($?): $*"
  tail -n "${LINES_SHOWN:-40}" "$out/$name.txt"
}
peer() { [[ $has_torch != True ]] || run "$1_torch" 120 python3 "bench/peers/$1.py" "${@:2}"; }

for kernel in rows optimizer vocabulary attention attention_backward attention_decode; do run "$kernel" 180 "$build/${kernel}_bench"; done
cat "$out/rows.txt" "$out/optimizer.txt" >"$out/rows_and_optimizer.txt"
peer rows "$out/rows_and_optimizer.txt"  # reads its cases from this file
peer vocabulary
peer attention_backward
heads=(8192 151936 2560 8192 151552 4096)
run lm_head 180 "$build/lm_head_bench" "${heads[@]}"
run lm_head_training 60 "$build/lm_head_training_bench" "${heads[@]}"
peer lm_head "${heads[@]}"
run gemm_backward 120 "$build/gemm_backward_bench" 8192 6144 2560 8192 2560 4096 8192 19456 2560 8192 2560 9728 9001 27392 4096
large=(8192 4608 4096 8192 27392 4096 8192 4096 13696 8192 5120 12288)
small=(64 4608 4096 64 27392 4096 64 4096 13696 256 6144 4096 256 4096 4096 256 24576 4096 256 4096 12288)
run gemm 120 "$build/gemm_bench" pair "${large[@]}" "${small[@]}"
peer gemm "${large[@]}" "${small[@]}"
peer attention
for directory in "$@"; do
  name=$(basename "$directory")
  run "${name}_train" 300 "$build/model_bench" train "$directory" 8192
  run "${name}_generate" 300 "$build/model_bench" generate "$directory" 256 1024 1024
  run "${name}_single" 300 "$build/model_bench" generate "$directory" 1 128 512
  if grep -q '"num_nextn_predict_layers": [1-9]' "$directory/config.json"; then
    run "${name}_speculate" 300 "$build/model_bench" speculate "$directory" 3 1 128 256 16 128 128
  fi
done
