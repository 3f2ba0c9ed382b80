#!/usr/bin/env bash
# If nvcc is installed, compiles all CUDA code, the modules that call the kernels, and the kernels' test programs. Runs
# nothing: the tests need a GPU (ctest -L gpu).
#
#   scripts/compile_cuda.sh [TARGET ...]     default: everything except the program itself
#
# SLX_PRESET: a preset instead of `cuda` (cuda-ci: warnings are errors).
set -euo pipefail
cd "$(dirname "$0")/.."
nvcc=$(command -v nvcc || true)
[[ -z $nvcc && -x /usr/local/cuda/bin/nvcc ]] && nvcc=/usr/local/cuda/bin/nvcc
if [[ -z $nvcc ]]; then
  echo "== CUDA: nvcc not found, so the CUDA code is not compiled"
  exit 0
fi
printf '\n== CUDA: compile with %s\n' "$("$nvcc" --version | sed -n 's/^Cuda compilation tools, //p')"
preset=${SLX_PRESET:-cuda}
cmake --preset "$preset" -DCMAKE_CUDA_COMPILER="$nvcc"
targets=("$@")
[[ ${#targets[@]} -eq 0 ]] && targets=(cuda_code)
cmake --build --preset "$preset" -j "${SLX_JOBS:-$(nproc)}" --target "${targets[@]}"
