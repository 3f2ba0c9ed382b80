// Shared by all launches: the stream's handle, a check of the launch, and scratch.
#pragma once
#include <cuda_runtime_api.h>
#include <cstdint>

#include <optional>

#include "slimexx/base/check.h"
#include "slimexx/ops/context.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::ops::cuda {

inline cudaStream_t handle(const Context& ctx) {
  return static_cast<cudaStream_t>(ctx.stream.handle);
}

// Throws if `fault` is not null. A `fault` says what is wrong with a launch of `op` on these
// operands.
void check_launch(const char* op, const char* fault, const Tensor& a, const Tensor& b);

// Allocates bytes from the context's arena until the end of the scope; a planning context only
// counts them.
class ScratchScope {
 public:
  ScratchScope(const Context& ctx, size_t bytes) {
    if (bytes == 0) return;
    scope_.emplace(ctx.arena);
    bytes_ = ctx.arena.allocate(tensor::DType::kU8, {static_cast<int64_t>(bytes)});
  }
  void* data() const { return bytes_.raw(); }

 private:
  std::optional<tensor::ArenaScope> scope_;
  Tensor bytes_;
};

}  // namespace slimexx::ops::cuda
