list(APPEND SLX_KERNELS_SOURCES
  gemm/choose.cpp
  gemm/fallback.cu
  gemm/gemm.cpp
  gemm/head_gemm.cu
  gemm/plain_64.cu
  gemm/plain_128.cu
  gemm/plain_128_ping_pong.cu
  gemm/plain_192.cu
  gemm/swapped_64.cu
  gemm/swapped_128.cu
  gemm/swapped_192.cu
  gemm/swiglu/swiglu.cu
  gemm/swiglu/swiglu_plain_64.cu
  gemm/swiglu/swiglu_plain_128_192.cu
  gemm/swiglu/swiglu_swapped.cu)
