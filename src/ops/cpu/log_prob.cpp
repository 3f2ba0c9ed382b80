#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/check.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

// A row is split into blocks of this many columns, so that one row can use all threads; the sums of
// the blocks are added in ascending order.
constexpr int64_t kBlock = 8192;

struct Blocks {
  int64_t rows, columns, per_row;
  explicit Blocks(const Tensor& logits)
      : rows(logits.dim(0)), columns(logits.dim(1)), per_row((columns + kBlock - 1) / kBlock) {}
  int64_t count() const { return rows * per_row; }
};

// Calls body(row, first column, width, block index) for all blocks, in parallel.
template <class Body>
void each_block(const Blocks& blocks, Body&& body) {
  const int64_t grain =
      std::max<int64_t>(1, 4096 / std::max<int64_t>(1, std::min(blocks.columns, kBlock)));
  parallel_for(blocks.count(), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t column = i % blocks.per_row * kBlock;
      body(i / blocks.per_row, column, std::min(kBlock, blocks.columns - column), i);
    }
  });
}

float sum_ascending(const float* x, int64_t n) {
  float sum = x[0];
  for (int64_t i = 1; i < n; ++i) sum += x[i];
  return sum;
}

}  // namespace

void normalize_logits(Tensor logits, Tensor lse, float temperature) {
  const KernelTable& isa = kernels();
  const Blocks blocks(logits);
  float* maxima = thread_scratch(Scratch::kRowStatistics, 2 * blocks.count());
  float* sums = maxima + blocks.count();
  each_block(blocks, [&](int64_t r, int64_t column, int64_t width, int64_t i) {
    maxima[i] =
        isa.divide_and_max(logits.f32() + r * logits.stride(0) + column, width, temperature);
  });
  for (int64_t r = 0; r < blocks.rows; ++r)
    lse.f32()[r] =
        *std::max_element(maxima + r * blocks.per_row, maxima + (r + 1) * blocks.per_row);
  each_block(blocks, [&](int64_t r, int64_t column, int64_t width, int64_t i) {
    sums[i] = isa.sum_exp(logits.f32() + r * logits.stride(0) + column, width, lse.f32()[r]);
  });
  for (int64_t r = 0; r < blocks.rows; ++r)
    lse.f32()[r] += std::log(sum_ascending(sums + r * blocks.per_row, blocks.per_row));
}

void merge_lse(Tensor lse, Tensor leaves) {
  const int64_t rows = lse.dim(0);
  parallel_for(rows, 1024, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* leaf = leaves.f32() + r;
      float largest = leaf[0], sum = 0;
      for (int64_t l = 1; l < leaves.dim(0); ++l) largest = std::max(largest, leaf[l * rows]);
      for (int64_t l = 0; l < leaves.dim(0); ++l) sum += std::exp(leaf[l * rows] - largest);
      lse.f32()[r] = largest + std::log(sum);
    }
  });
}

void gather_log_probs(Tensor log_probs, Tensor entropies, Tensor logits, Tensor lse,
                      Tensor targets) {
  const KernelTable& isa = kernels();
  const Blocks blocks(logits);
  for (int64_t r = 0; r < blocks.rows; ++r) {
    const int32_t target = targets.i32()[r];
    SLX_CHECK(target >= -1 && target < blocks.columns,
              "target {} of row {} is not in a vocabulary of {}", target, r, blocks.columns);
    log_probs.f32()[r] =
        target < 0 ? 0.0f : logits.f32()[r * logits.stride(0) + target] - lse.f32()[r];
  }
  if (!entropies.defined()) return;
  float* sums = thread_scratch(Scratch::kRowStatistics, blocks.count());
  each_block(blocks, [&](int64_t r, int64_t column, int64_t width, int64_t i) {
    sums[i] = isa.sum_p_log_p(logits.f32() + r * logits.stride(0) + column, width, lse.f32()[r]);
  });
  for (int64_t r = 0; r < blocks.rows; ++r)
    entropies.f32()[r] = -sum_ascending(sums + r * blocks.per_row, blocks.per_row);
}

void log_probs_backward(Tensor dlogits, Tensor logits, Tensor lse, Tensor targets, Tensor entropies,
                        Tensor dlog_probs, Tensor dentropies, float temperature) {
  const KernelTable& isa = kernels();
  each_block(Blocks(logits), [&](int64_t r, int64_t column, int64_t width, int64_t) {
    const float* row = logits.f32() + r * logits.stride(0) + column;
    float* out = dlogits.f32() + r * dlogits.stride(0) + column;
    const int64_t target = targets.i32()[r] - column;
    const float dlp = dlog_probs.f32()[r];
    const float dentropy = dentropies.defined() ? dentropies.f32()[r] : 0.0f;
    isa.log_probs_backward_row(out, row, width, lse.f32()[r], dlp, dentropy,
                               entropies.defined() ? entropies.f32()[r] : 0.0f, temperature);
    if (target >= 0 && target < width) out[target] += dlp / temperature;
  });
}

}  // namespace slimexx::ops::cpu
