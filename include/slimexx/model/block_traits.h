// Properties of each kind of block, apart from its computation. Code outside of blocks calls
// functions for these properties instead of testing for a kind of block; docs/howto/block.md lists
// them.
#pragma once
#include <cstdint>

#include "slimexx/tensor/tensor.h"

namespace slimexx::model {

// The kind of memory that a layer keeps per sequence between the steps of generation.
enum class CacheKind : uint8_t {
  kPages,  // rows per token, in pages (page_bytes, make_pages)
  kState,  // a fixed number of bytes per sequence, whatever its length
};

// The class of a block's kernels, which selects measured rates of a device. A model has the highest
// class of its blocks, in this order.
enum class RateClass : uint8_t { kDense, kExperts, kLatentAttention };

// A product with `rows` output rows in the whole block, which tensor parallelism splits. `key` is
// the entry of config.json that determines the rows.
struct SplitProduct {
  const char* key = "";
  int64_t rows = 0;  // 0: no product is split
};

// Gradient rows of parameters that `num_copies` neighbouring tp ranks hold. The gradient of the
// shared parameter is the sum over the copies.
struct CopiedRows {
  tensor::Tensor values;  // f32
  int num_copies = 1;
};

// How an engine holds the MLPs.
struct EngineLayout {
  bool replicates_dense = false;  // every tp rank holds whole dense MLPs and shared experts
  bool splits_experts = false;    // experts are split over several ranks
  int64_t redundant_experts = 0;
};

}  // namespace slimexx::model
