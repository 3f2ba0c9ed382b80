list(APPEND SLX_KERNELS_SOURCES ranks/rank_sum.cu)
