list(APPEND SLX_KERNELS_SOURCES
  sparse_index/index_scores.cu
  sparse_index/scores_16.cu
  sparse_index/scores_32.cu
  sparse_index/scores_64.cu
  sparse_index/select_keys.cu)
