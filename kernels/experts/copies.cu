// Maps each choice of an expert to a physical copy of that expert, by a look-up table. The table is
// a kernel parameter, so a recorded launch needs no device memory for it.
#include "kernels/common/early_launch.cuh"
#include "kernels/common/sizes.h"
#include "slimexx/kernels/experts.h"

namespace slimexx::kernels {
namespace {

constexpr int kCopyThreads = 256;

struct CopyProblem {
  int32_t* copies;
  const int32_t* ids;
  int count;
  uint16_t table[kMostExperts];
};

__global__ void __launch_bounds__(kCopyThreads) copies_kernel(const CopyProblem p) {
  enter_kernel();
  const int choice = static_cast<int>(blockIdx.x) * kCopyThreads + static_cast<int>(threadIdx.x);
  if (choice < p.count) p.copies[choice] = p.table[p.ids[choice]];
}

}  // namespace

const char* choose_copies(int32_t* copies, const int32_t* ids, int64_t count, const int32_t* table,
                          int64_t experts, cudaStream_t stream) {
  if (experts < 1 || experts > kMostExperts) {
    return "choose_copies: the number of experts must be from 1 to 384";
  }
  if (count < 0 || count > INT32_MAX / 2) return "choose_copies: too many choices";
  if (count == 0) return nullptr;
  CopyProblem p{copies, ids, static_cast<int>(count), {}};
  for (int64_t e = 0; e < experts; ++e) {
    if (table[e] < 0 || table[e] > UINT16_MAX) return "choose_copies: a copy is not in [0, 65535]";
    p.table[e] = static_cast<uint16_t>(table[e]);
  }
  const LaunchShape shape{dim3(static_cast<unsigned>(divide_up(count, int64_t{kCopyThreads}))),
                          kCopyThreads};
  const cudaError_t error = launch_early(copies_kernel, shape, stream, p);
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace slimexx::kernels
