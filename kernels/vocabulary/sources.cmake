list(APPEND SLX_KERNELS_SOURCES
  vocabulary/merge.cu)
