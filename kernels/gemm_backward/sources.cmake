list(APPEND SLX_KERNELS_SOURCES
  gemm_backward/choose.cpp
  gemm_backward/cublas_product.cpp
  gemm_backward/gemm_backward.cpp
  gemm_backward/plain_product.cu)
