list(APPEND SLX_KERNELS_SOURCES
  float8/quantise.cu)
