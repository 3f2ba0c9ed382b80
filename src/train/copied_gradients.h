// Gradients of parameters that several tp ranks hold: keys and values if there are fewer heads than
// ranks (model::list_copied_rows). Each copy has the gradient from its rank's queries; the
// parameter's gradient is their sum.
#pragma once
#include <span>
#include <vector>

#include "train/passes/executor.h"

namespace slimexx::train {

class CopiedGradients {
 public:
  // `chunks`: the stages of a tp rank, with their gradients.
  CopiedGradients(std::span<const StageChunk> chunks, const dist::Collective& tp);
  bool empty() const { return rows_.empty(); }
  // Call after the last backward of a step, before gradients are summed over replicas. Every copy
  // becomes the sum of all copies in rank order. Collective over tp.
  void sum(const ops::Context& ctx) const;

 private:
  void add_chunk(const model::Decoder& decoder, const model::ModelParameters& gradients, int tp);
  void add_layer(const model::LayerSpec& whole, const model::LayerSpec& own,
                 const model::LayerParameters<tensor::Tensor>& gradients, int tp);

  std::vector<model::CopiedRows> rows_;
};

}  // namespace slimexx::train
