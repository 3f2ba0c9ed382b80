// Weight gradients that backward defers, so that a pipeline stage first sends the input gradient
// that the previous stage waits for (zero-bubble schedules, Qi et al., arXiv:2401.10241).
#pragma once
#include <vector>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

class DeferredProducts {
 public:
  // `arena` holds copies of the operands; nothing else may use it while products are pending.
  explicit DeferredProducts(tensor::Arena& arena) : arena_(&arena) {}
  // Defers one matmul_backward_weight; copies dy and x.
  void add(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x, bool accumulate);
  // Runs the products in the order of add(), then forgets them.
  void run(const Context& ctx);
  bool empty() const { return products_.empty(); }

 private:
  struct Product {
    Tensor dw, dbias, dy, x;
    bool accumulate = false;
  };
  tensor::Arena* arena_;
  std::vector<Product> products_;
};

}  // namespace slimexx::ops
