// Products of weights' gradients that backward leaves for later, so that a stage of a pipeline
// first sends what the stage before it waits for (Qi et al., arXiv:2401.10241).
#pragma once
#include <vector>

#include "slimexx/ops/context.h"

namespace slimexx::ops {

class DeferredProducts {
 public:
  // `arena` keeps operands, and nothing else while there are any.
  explicit DeferredProducts(tensor::Arena& arena) : arena_(&arena) {}
  // A matmul_backward_weight, with copies of dy and x.
  void add(const Context& ctx, Tensor dw, Tensor dbias, Tensor dy, Tensor x, bool accumulate);
  // Runs them in the order in which they came, and forgets them.
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
