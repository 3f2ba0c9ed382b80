list(APPEND SLX_KERNELS_SOURCES
  attention/attention_forward.cu
  attention/few_rows.cu
  attention/merge_segments.cu
  attention/split_keys.cu
  attention/whole_rows.cu)
