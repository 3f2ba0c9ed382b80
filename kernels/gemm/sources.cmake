list(APPEND SLX_KERNELS_SOURCES
  gemm/choose.cpp
  gemm/fallback.cu
  gemm/gemm.cpp
  gemm/plain.cu
  gemm/swapped.cu
  gemm/swapped_wide.cu)
