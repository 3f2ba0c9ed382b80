// Work beside that of a context: for products that wait for nothing which the next operations make,
// where those are small and leave most of the device idle.
#pragma once
#include <cstdint>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

// Between construction and join() two queues run: what is called with context() and what is called
// with the context that it branches from, both behind what that one had queued before. On the CPU
// and in planning there is one queue, in the order of the calls. Operands, results and `memory` are
// the caller's, who keeps them until join() and never writes what the other queue reads. Recorded
// steps hold branches too (tensor/graph.h).
class Branch {
 public:
  // `memory` [bytes] U8 is what the branch's operations take in their turn.
  Branch(const Context& ctx, Tensor memory);
  Branch(const Branch&) = delete;
  Branch& operator=(const Branch&) = delete;

  const Context& context() const { return context_; }
  // What is queued after this on the context that it branches from runs behind the branch.
  void join();

 private:
  tensor::Stream from_;
  tensor::Arena arena_;
  int64_t memory_bytes_ = 0;
  Context context_;
  tensor::Event passed_;
};

}  // namespace slimexx::ops
