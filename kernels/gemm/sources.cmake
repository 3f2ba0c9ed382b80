list(APPEND SLX_KERNELS_SOURCES
  gemm/choose.cpp
  gemm/fallback.cu
  gemm/gemm.cpp
  gemm/plain.cu
  gemm/plain_narrow.cu
  gemm/plain_turns.cu
  gemm/plain_wide.cu
  gemm/swiglu.cu
  gemm/swiglu_narrow.cu
  gemm/swiglu_plain.cu
  gemm/swiglu_swapped.cu
  gemm/swapped.cu
  gemm/swapped_wide.cu
  gemm/swapped_wider.cu)
