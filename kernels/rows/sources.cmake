list(APPEND SLX_KERNELS_SOURCES
  rows/column_sums.cu
  rows/elementwise.cu
  rows/embedding_backward.cu
  rows/gather.cu
  rows/heads.cu
  rows/layer_norm.cu
  rows/partial_sums.cu
  rows/qk_norm_rotary.cu
  rows/qk_norm_rotary_backward.cu
  rows/rms_norm.cu
  rows/rms_norm_backward.cu
  rows/swiglu.cu
  rows/token_sort.cu)
