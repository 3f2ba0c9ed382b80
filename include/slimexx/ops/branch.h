// A second queue beside a context, for products that do not depend on the next operations, when
// those operations are small and leave most of the device idle.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Between construction and join() there are two queues, one for calls with context() and one for
// calls with the parent context. Both run after all work that the parent queued before. On the CPU
// and in planning there is one queue, in the order of the calls. The caller owns operands, results
// and `memory`, keeps them until join(), and must not write on one queue what the other reads.
// Recorded steps may contain branches too (tensor/graph.h).
class Branch {
 public:
  // `memory` [bytes] U8 is the scratch of the operations on the branch.
  Branch(const Context& ctx, Tensor memory);
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  const Context& context() const { return context_; }
  // Work that the parent context queues later runs after the branch.
  void join();

 private:
  tensor::Stream from_;
  tensor::Arena arena_;
  int64_t memory_bytes_ = 0;
  Context context_;
  tensor::Event passed_;
};

}  // namespace slimexx::ops
