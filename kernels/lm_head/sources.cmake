list(APPEND SLX_KERNELS_SOURCES
  lm_head/backward.cu
  lm_head/forward.cu
  lm_head/kept.cu
  lm_head/lm_head.cpp)
