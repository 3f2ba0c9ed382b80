// Marks functions that CPU code and kernels share, in headers that compile without CUDA.
#pragma once

#ifdef __CUDACC__
#define SLX_BOTH_SIDES __host__ __device__ __forceinline__
#else
#define SLX_BOTH_SIDES inline
#endif
