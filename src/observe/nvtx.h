// NVTX ranges for Nsight and other CUDA profilers; they do nothing in a build without CUDA.
#pragma once
#ifdef SLX_WITH_CUDA
#include <nvtx3/nvToolsExt.h>
#endif

namespace slimexx::observe {

#ifdef SLX_WITH_CUDA
inline void begin_nvtx_range(const char* name) { nvtxRangePushA(name); }
inline void end_nvtx_range() { nvtxRangePop(); }
#else
inline void begin_nvtx_range(const char*) {}
inline void end_nvtx_range() {}
#endif

}  // namespace slimexx::observe
