// Memory of keys and values: two page tensors a layer, in one buffer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/transformer.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

// Bytes of one page over all layers.
int64_t page_bytes(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens);

// How many pages the options ask for. Throws Error(kUsage) if one sequence of `max_sequence_tokens`
// does not fit.
int64_t count_pages(const EngineOptions& options, int64_t bytes_per_page,
                    int64_t max_sequence_tokens);

class KvCache {
 public:
  KvCache(const model::ModelSpec& spec, tensor::Device device, tensor::DType dtype,
          int64_t num_pages, int64_t page_tokens);
  std::span<const model::LayerPages> layers() const { return layers_; }
  int64_t memory_bytes() const { return buffer_.size_bytes(); }
  tensor::Tensor bytes() const { return buffer_.view(tensor::DType::kU8, {buffer_.size_bytes()}); }

 private:
  tensor::Buffer buffer_;
  std::vector<model::LayerPages> layers_;
};

}  // namespace slimexx::rollout
