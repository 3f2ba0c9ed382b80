// Weights w = exp(logit - largest logit) in f32; every sum of them in double. Logits order tokens
// (ties: the lower id first), weights measure mass.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kBlock = 1024;

// 53 bits of the first two words, in [0, 1).
double uniform_double(const SamplingRow& row) {
  const PhiloxCounter words =
      philox4x32({row.counter[0], row.counter[1], row.counter[2], row.counter[3]},
                 {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  const uint64_t bits = uint64_t{words[0] >> 5} << 26 | words[1] >> 6;
  return static_cast<double>(bits) * 0x1.0p-53;
}

[[noreturn]] void throw_bad_row(int64_t row) {
  throw Error(ErrorCode::kRun,
              "the logits of row " + std::to_string(row) + " hold NaN, +inf, or nothing but -inf",
              "the model has diverged or its weights are damaged: look at the gradient norm and "
              "the learning rate",
              "sample_tokens");
}

double sum_in_id_order(const float* weights, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += weights[i];
  return sum;
}

// The first id whose cumulative weight exceeds `goal`; the last one with weight if rounding leaves
// none. Tokens without weight are passed over.
template <class IdAt>
int64_t walk(const float* weights, int64_t n, double sum_before, double goal, IdAt id_at) {
  int64_t chosen = -1;
  double sum = sum_before;
  for (int64_t i = 0; i < n; ++i) {
    const float w = weights[id_at(i)];
    if (w == 0.0f) continue;
    chosen = id_at(i);
    sum += w;
    if (sum > goal) break;
  }
  return chosen;
}

class RowSampler {
 public:
  RowSampler(const KernelTable& isa, const float* logits, int64_t n, int64_t row_index)
      : isa_(isa), logits_(logits), n_(n), row_index_(row_index) {}

  int64_t sample(const SamplingRow& row) {
    maximum_ = isa_.max_value(logits_, n_);
    weights_ = thread_scratch(Scratch::kSampling, n_);
    isa_.exp_shifted(weights_, logits_, n_, maximum_);
    sum_blocks();
    if (!std::isfinite(maximum_) || !std::isfinite(total_)) throw_bad_row(row_index_);
    if (row.greedy) return std::find(logits_, logits_ + n_, maximum_) - logits_;
    const double u = uniform_double(row);
    const bool truncated = (row.top_k > 0 && row.top_k < n_) || row.top_p < 1.0f;
    if (!truncated && row.min_p <= 0.0f) return walk_all(u);
    if (!truncated) {
      keep_all_tokens();
    } else {
      keep_best_tokens(row);
    }
    if (row.min_p > 0.0f)
      std::erase_if(kept_, [&](int32_t id) { return weights_[id] < row.min_p; });
    return walk_kept(u);
  }

 private:
  void sum_blocks() {
    total_ = 0.0;
    block_ends_.clear();
    for (int64_t i = 0; i < n_; i += kBlock) {
      total_ += sum_in_id_order(weights_ + i, std::min(kBlock, n_ - i));
      block_ends_.push_back(total_);
    }
  }

  int64_t walk_all(double u) const {
    const double goal = std::min(u * total_, std::nextafter(total_, 0.0));  // u close to 1 may round up
    auto block =
        std::upper_bound(block_ends_.begin(), block_ends_.end(), goal) - block_ends_.begin();
    const int64_t first = block * kBlock;
    const double before = block == 0 ? 0.0 : block_ends_[static_cast<size_t>(block - 1)];
    return first + walk(weights_ + first, std::min(kBlock, n_ - first), before, goal,
                        [](int64_t i) { return i; });
  }

  bool precedes(int32_t a, int32_t b) const {
    return logits_[a] != logits_[b] ? logits_[a] > logits_[b] : a < b;
  }

  void keep_all_tokens() {
    kept_.resize(static_cast<size_t>(n_));
    for (int64_t i = 0; i < n_; ++i) kept_[static_cast<size_t>(i)] = static_cast<int32_t>(i);
  }

  // top_k, then top_p of what is left. Candidates are sorted only as far as they are needed.
  void keep_best_tokens(const SamplingRow& row) {
    const int64_t limit = row.top_k > 0 ? std::min<int64_t>(row.top_k, n_) : n_;
    collect_candidates(row, limit);
    const auto size = std::min<size_t>(static_cast<size_t>(limit), kept_.size());
    sort_best(0, row.top_k > 0 ? size : std::min<size_t>(size, 64));
    if (row.top_p >= 1.0f) return kept_.resize(size);
    double mass = total_;
    if (row.top_k > 0 && limit < n_) {
      mass = 0.0;
      for (size_t i = 0; i < size; ++i) mass += weights_[kept_[i]];
    }
    size_t sorted = row.top_k > 0 ? size : std::min<size_t>(size, 64), count = 0;
    for (double sum = 0.0; count < size; ++count) {
      if (count > 0 && sum >= static_cast<double>(row.top_p) * mass) break;
      if (count == sorted) {
        const size_t end = std::min(size, 4 * sorted);
        sort_best(sorted, end);
        sorted = end;
      }
      sum += weights_[kept_[count]];
    }
    kept_.resize(count);
  }

  // Tokens lighter than this weigh less than 1 - top_p together, so that top_p never reaches them.
  void collect_candidates(const SamplingRow& row, int64_t limit) {
    const bool whole = limit < n_ || row.top_p >= 1.0f;
    const double threshold =
        whole ? -1.0
              : 0.5 * (1.0 - static_cast<double>(row.top_p)) * total_ / static_cast<double>(n_);
    kept_.clear();
    for (int64_t i = 0; i < n_; ++i)
      if (weights_[i] > threshold) kept_.push_back(static_cast<int32_t>(i));
  }

  // Puts the best tokens of kept_[begin, ...) into [begin, end), in order.
  void sort_best(size_t begin, size_t end) {
    const auto before = [this](int32_t a, int32_t b) { return precedes(a, b); };
    const auto first = kept_.begin() + static_cast<int64_t>(begin),
               middle = kept_.begin() + static_cast<int64_t>(end);
    if (middle != kept_.end()) std::nth_element(first, middle, kept_.end(), before);
    std::sort(first, middle, before);
  }

  int64_t walk_kept(double u) {
    std::sort(kept_.begin(), kept_.end());
    double mass = 0.0;
    for (int32_t id : kept_) mass += weights_[id];
    return walk(weights_, static_cast<int64_t>(kept_.size()), 0.0, u * mass,
                [&](int64_t i) { return kept_[static_cast<size_t>(i)]; });
  }

  const KernelTable& isa_;
  const float* logits_;
  const int64_t n_, row_index_;
  float maximum_ = 0.0f;
  float* weights_ = nullptr;
  double total_ = 0.0;
  static thread_local std::vector<double> block_ends_;
  static thread_local std::vector<int32_t> kept_;
};

thread_local std::vector<double> RowSampler::block_ends_;
thread_local std::vector<int32_t> RowSampler::kept_;

}  // namespace

void sample_tokens(Tensor tokens, Tensor log_probs, Tensor logits, Tensor lse,
                   std::span<const SamplingRow> rows, int64_t allowed_tokens) {
  const KernelTable& isa = kernels();
  const int64_t n = allowed_tokens > 0 ? allowed_tokens : logits.dim(1);
  parallel_for(logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = logits.f32() + r * logits.stride(0);
      const int64_t token = RowSampler(isa, row, n, r).sample(rows[static_cast<size_t>(r)]);
      tokens.i32()[r] = static_cast<int32_t>(token);
      log_probs.f32()[r] = row[token] - lse.f32()[r];
    }
  });
}

}  // namespace slimexx::ops::cpu
