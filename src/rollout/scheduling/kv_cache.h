// Memory of keys and values: two page tensors per layer, in one buffer.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "slimexx/model/decoder.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

// Throws Error(kUsage), naming the layer, if a layer keeps anything other than pages. The engine
// does not support a state per sequence yet: prefix cache, drafts, preemption and recorded steps
// would have to save, share and restore it.
void check_cache_kinds(const model::ModelSpec& spec);

// Bytes of one page over all layers.
int64_t page_bytes(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens);
// Upper bound on the cache's bytes besides its pages: layers start on aligned addresses.
int64_t cache_padding(const model::ModelSpec& spec, tensor::DType dtype, int64_t page_tokens);

// Upper bound on pages: given by the options, otherwise the number that can be useful.
int64_t useful_pages(const EngineOptions& options, int64_t bytes_per_page,
                     int64_t pages_per_sequence);

// Number of pages of a cache: all that fit in `cache_memory` if that is defined, otherwise as the
// options and the device allow (EngineOptions). Throws Error(kUsage) if one sequence of the maximum
// length does not fit.
int64_t count_pages(const EngineOptions& options, const EngineMemory& memory, tensor::Device device,
                    const tensor::Tensor& cache_memory);

class KvCache {
 public:
  // Uses `memory` [bytes] U8 if that is defined; otherwise allocates its own buffer.
  KvCache(const model::ModelSpec& spec, tensor::Device device, tensor::DType dtype,
          int64_t num_pages, int64_t page_tokens, tensor::Tensor memory);
  std::span<const model::LayerPages> layers() const { return layers_; }
  int64_t memory_bytes() const { return bytes_.size_bytes(); }
  tensor::Tensor bytes() const { return bytes_; }  // [memory_bytes] U8

 private:
  tensor::Buffer buffer_;
  tensor::Tensor bytes_;
  std::vector<model::LayerPages> layers_;
};

}  // namespace slimexx::rollout
