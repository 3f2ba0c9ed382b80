// What one forward runs over.
#pragma once
#include <cstdint>
#include <span>

#include "slimexx/ops/attention.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::model {

using tensor::Arena;
using tensor::DType;
using tensor::Tensor;

// Where a layer's keys and values live in generation; undefined: packed.
struct LayerPages {
  Tensor k, v;          // [num_pages, page_tokens, Hkv, D]
  Tensor index_k = {};  // [num_pages, page_tokens, 1, D] of an indexer (blocks/sparse_index.h)
};

// Which keys the queries of a layer see.
struct KeyChoice {
  bool selects = false;  // by the layer's own select_keys
  bool shares = false;   // as the last layer before it that selects
  int64_t top_k = 0;     // of one query; 0: all
};

// Packed (training): pages and slots are empty. Paged (generation): the batch's keys and values are
// written to `slots` first, then attention reads the page table.
struct Batch {
  Tensor tokens;     // [T] i32
  Tensor positions;  // [T] i32
  ops::AttentionLayout attention;
  Tensor slots;                       // [T] i32
  std::span<const LayerPages> pages;  // by layer of the stage
};

}  // namespace slimexx::model
