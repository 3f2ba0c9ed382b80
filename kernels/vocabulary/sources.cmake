list(APPEND SLX_KERNELS_SOURCES
  vocabulary/log_probs.cu
  vocabulary/merge.cu
  vocabulary/sample_tokens.cu
  vocabulary/step_tokens.cu
  vocabulary/streamed_tile_pass.cu
  vocabulary/tile_pass.cu)
