list(APPEND SLX_KERNELS_SOURCES
  float8/cached_rows.cu
  float8/choose.cpp
  float8/gemm.cpp
  float8/grouped/product.cpp
  float8/grouped/plain.cu
  float8/grouped/quantising.cu
  float8/grouped/swapped.cu
  float8/grouped/swiglu.cu
  float8/plain.cu
  float8/quantise.cu
  float8/quantising.cu
  float8/swiglu_plain.cu
  float8/swiglu_swapped.cu
  float8/swapped_64.cu
  float8/swapped_128.cu
  float8/swapped_192.cu)
