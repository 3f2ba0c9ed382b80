// Keys and values that attention reads, and their rounding to the FP8 values of a KV cache
// (numerics N11).
//
// With an FP8 cache every forward uses the values that the cache would return: training rounds keys
// and values through FP8 before attention, and generation writes the same values to its pages.
// Gradients pass the rounding unchanged. One scale belongs to the elements of one key head of one
// token; in a latent row, to 128 elements. The scale is tensor::f8_key_scale.
#pragma once
#include <concepts>
#include <cstdint>

#include "slimexx/ops/context.h"
#include "slimexx/tensor/float8.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::ops {

struct CacheRows {
  // In the compute type, or FP8 pages: kF8E4M3 [num_pages,page_tokens,Hkv,D]; in latent attention
  // kU8 [num_pages,page_tokens,1,tensor::F8LatentRow::bytes].
  Tensor rows = {};
  Tensor scales = {};  // for kF8E4M3: bf16 [num_pages,Hkv,page_tokens]

  CacheRows() = default;
  template <std::convertible_to<Tensor> Rows>
  CacheRows(const Rows& all_rows) : rows(all_rows) {}
  CacheRows(Tensor all_rows, Tensor all_scales) : rows(all_rows), scales(all_scales) {}
  bool defined() const { return rows.defined(); }
  bool is_fp8() const { return defined() && (scales.defined() || is_latent_fp8()); }
  bool is_latent_fp8() const { return defined() && rows.dtype() == tensor::DType::kU8; }
};

// Rounds every head of keys[T,H,D] (free token stride) in place. With pages it also writes values
// and scales to slots[T] = page * page_tokens + offset, i32 (below 0: skipped). CUDA: one head.
void round_keys(const Context& ctx, Tensor keys, const CacheRows& pages, Tensor slots);
// The same for the first `rank` elements of latent[T,rank+Dr]; pages receive all elements.
void round_latent_rows(const Context& ctx, Tensor latent, int64_t rank, Tensor pages, Tensor slots);

}  // namespace slimexx::ops
