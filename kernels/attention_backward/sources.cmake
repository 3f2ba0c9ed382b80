list(APPEND SLX_KERNELS_SOURCES
  attention_backward/attention_backward.cu
  attention_backward/key_gradients.cu
  attention_backward/list_walks.cu
  attention_backward/query_gradients.cu
  attention_backward/query_gradients_of_spans.cu
  attention_backward/seen_keys.cu
  attention_backward/sum_parts.cu
  attention_backward/wide_key_gradients.cu
  attention_backward/wide_query_gradients.cu
  attention_backward/wide_statistics.cu)
