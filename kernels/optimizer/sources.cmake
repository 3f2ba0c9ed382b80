list(APPEND SLX_KERNELS_SOURCES
  optimizer/adamw.cu
  optimizer/sum_of_squares.cu)
