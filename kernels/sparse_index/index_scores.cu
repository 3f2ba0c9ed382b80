// Checks the problem and chooses the shape of the launch; the choice does not change a bit of the
// result.
#include <algorithm>

#include "kernels/common/device.h"
#include "kernels/sparse_index/problem.cuh"

namespace slimexx::kernels {
namespace sparse_index {
namespace {

bool is_served(const IndexScores& p) {
  const bool paged = p.page_table != nullptr;
  return has_served_rows(p.rows) && p.heads > 0 && p.heads <= kMostIndexHeads && p.head_dim > 0 &&
         p.head_dim <= kMostIndexHeadDim && p.head_dim % 8 == 0 && is_given(p.q, p.q_stride) &&
         p.q_stride >= p.heads * p.head_dim && is_given(p.keys, p.key_stride) &&
         p.key_stride >= p.head_dim && p.weights != nullptr && p.scores != nullptr &&
         p.score_stride >= 0 && p.key_rows > 0 && p.key_rows <= INT32_MAX && p.top_k >= 0 &&
         p.scale > 0.0f &&
         (p.key_scales == nullptr || (paged && p.head_dim % 16 == 0 && p.key_stride % 16 == 0)) &&
         (!paged || (p.page_tokens >= 16 && (p.page_tokens & (p.page_tokens - 1)) == 0));
}

Problem describe(const IndexScores& scores) {
  Problem p{};
  const bool paged = scores.page_table != nullptr;
  p.rows = describe_rows(scores.rows);
  p.weights = scores.weights;
  p.scores = scores.scores;
  p.page_table = scores.page_table;
  p.page_table_stride = scores.page_table_stride;
  p.score_stride = scores.score_stride;
  p.page_shift = paged ? log2_of(scores.page_tokens) : 0;
  p.box_rows = paged ? static_cast<int>(std::min<int64_t>(scores.page_tokens, kBlock)) : kBlock;
  p.heads = static_cast<int>(scores.heads);
  p.top_k = static_cast<int>(std::min<int64_t>(scores.top_k, INT32_MAX));
  p.scale = scores.scale;
  return p;
}

}  // namespace
}  // namespace sparse_index

using namespace sparse_index;

cudaError_t index_scores(const IndexScores& scores, cudaStream_t stream) {
  if (scores.rows.rows == 0) return cudaSuccess;
  if (!is_served(scores)) return cudaErrorInvalidValue;
  int sm_count = 0;
  if (const cudaError_t error = count_multiprocessors(sm_count)) return error;
  const int heads = scores.heads <= 16 ? 16 : scores.heads <= 32 ? 32 : 64;
  Launch launch{};
  launch.problem = describe(scores);
  launch.tile_queries = scores.rows.max_query_len <= 1 ? 1 : kMostColumns / heads;
  launch.head_boxes = scores.head_dim <= kBoxColumns ? 1 : 2;
  // Upper bound: every sequence may end with a partial tile.
  const int64_t rows = scores.rows.rows;
  const int64_t tiles = divide_up(rows, launch.tile_queries) +
                        (launch.tile_queries > 1 ? std::min(rows, scores.rows.sequences) - 1 : 0);
  const int64_t blocks = tiles * std::max<int64_t>(1, divide_up(scores.rows.max_key_len, kBlock));
  if (blocks > INT32_MAX) return cudaErrorInvalidValue;
  launch.grid = static_cast<unsigned>(std::min<int64_t>(blocks, sm_count));
  const bool is_f8 = scores.key_scales != nullptr;
  if (is_f8) {
    launch.f8_keys = {static_cast<const uint8_t*>(scores.keys),
                      static_cast<const uint16_t*>(scores.key_scales), scores.key_stride,
                      static_cast<int>(scores.head_dim)};
  }
  const bool encoded =
      encode_bf16_tensor<3>(&launch.query_map, scores.q, {scores.head_dim, scores.heads, rows},
                            {scores.head_dim, scores.q_stride},
                            {kBoxColumns, heads, launch.tile_queries}) &&
      (is_f8 || encode_bf16_matrix(&launch.key_map, scores.keys, scores.key_rows, scores.head_dim,
                                   scores.key_stride, launch.problem.box_rows));
  if (!encoded) return cudaErrorInvalidValue;
  if (heads == 16) return launch_16_heads(launch, stream);
  return heads == 32 ? launch_32_heads(launch, stream) : launch_64_heads(launch, stream);
}

}  // namespace slimexx::kernels
