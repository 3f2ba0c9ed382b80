// Checks of an attention layout and of the pages of a KV cache, for all ops that read or write
// keys.
#pragma once
#include <cstdint>
#include <initializer_list>

#include "slimexx/ops/attention.h"

namespace slimexx::ops {

// Checks that cu_seqlens ascends from 0 to num_tokens, and that context lengths, pages and a
// selection fit.
void check_layout(const char* op, const AttentionLayout& layout, const Context& ctx,
                  int64_t num_tokens);

// Checks pages of shape [num_pages, page_tokens, Hkv, D] in the compute type, or in FP8 with
// scales (cache_rows.h).
void check_pages(const char* op, const char* name, const Context& ctx, const CacheRows& pages,
                 std::initializer_list<int64_t> shape);
// Checks FP8 pages of latent rows; undefined pages pass.
void check_latent_pages(const char* op, const Context& ctx, const Tensor& pages, int64_t rank,
                        int64_t rotary_width);

}  // namespace slimexx::ops
