list(APPEND SLX_KERNELS_SOURCES
  gemm/choose.cpp
  gemm/fallback.cu
  gemm/gemm.cpp
  gemm/plain.cu
  gemm/plain_narrow.cu
  gemm/plain_wide.cu
  gemm/swapped.cu
  gemm/swapped_wide.cu
  gemm/swapped_wider.cu)
