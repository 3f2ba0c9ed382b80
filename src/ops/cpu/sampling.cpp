// Weights w = exp(logit - largest logit) in f32; every sum of weights is in double. Tokens are
// ordered by logit (ties: the lower id first); a token's mass is its weight.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/isa/isa.h"
#include "ops/cpu/scratch.h"
#include "slimexx/base/check.h"
#include "slimexx/base/philox.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

constexpr int64_t kBlock = 1024;

// 53 bits from the first two words, in [0, 1).
double uniform_double(const SamplingRow& row) {
  const PhiloxCounter words =
      philox4x32({row.counter[0], row.counter[1], row.counter[2], row.counter[3]},
                 {static_cast<uint32_t>(row.seed), static_cast<uint32_t>(row.seed >> 32)});
  const uint64_t bits = uint64_t{words[0] >> 5} << 26 | words[1] >> 6;
  return static_cast<double>(bits) * 0x1.0p-53;
}

double sum_in_id_order(const float* weights, int64_t n) {
  double sum = 0.0;
  for (int64_t i = 0; i < n; ++i) sum += weights[i];
  return sum;
}

// The first id whose cumulative weight exceeds `goal`, or the last one with weight if rounding
// leaves no such id. Tokens without weight are skipped.
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
  RowSampler(const KernelTable& isa, const float* logits, int64_t n)
      : isa_(isa), logits_(logits), n_(n) {}

  // Returns -1 if there is nothing to sample from.

  int64_t sample(const SamplingRow& row) {
    maximum_ = isa_.max_value(logits_, n_);
    weights_ = thread_scratch(Scratch::kSampling, n_);
    isa_.exp_shifted(weights_, logits_, n_, maximum_);
    sum_blocks();
    if (!std::isfinite(maximum_) || !std::isfinite(total_)) return -1;
    if (row.greedy != 0) return std::find(logits_, logits_ + n_, maximum_) - logits_;
    const double u = uniform_double(row);
    const bool truncated = (row.top_k > 0 && row.top_k < n_) || row.top_p < 1.0f;
    if (!truncated && row.min_p <= 0.0f) return walk_all(u);
    if (!truncated) {
      keep_all_tokens();
    } else {
      keep_best_tokens(row);
    }
    if (row.min_p > 0.0f)
      std::erase_if(keys_, [&](uint64_t key) { return weight_of(key) < row.min_p; });
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
    const double goal = std::min(
        u * total_, std::nextafter(total_, 0.0));  // rounding for u close to 1 may reach total_
    auto block =
        std::upper_bound(block_ends_.begin(), block_ends_.end(), goal) - block_ends_.begin();
    const int64_t first = block * kBlock;
    const double before = block == 0 ? 0.0 : block_ends_[static_cast<size_t>(block - 1)];
    return first + walk(weights_ + first, std::min(kBlock, n_ - first), before, goal,
                        [](int64_t i) { return i; });
  }

  // Keys sort tokens from the best to the worst: descending logits, then ascending ids.
  uint64_t key_of(int64_t id) const {
    const auto bits = std::bit_cast<uint32_t>(logits_[id] + 0.0f);  // -0 counts as 0
    const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return uint64_t{~ascending} << 32 | static_cast<uint64_t>(id);
  }
  float weight_of(uint64_t key) const { return weights_[key & 0xFFFFFFFFu]; }

  void keep_all_tokens() {
    keys_.clear();
    for (int64_t i = 0; i < n_; ++i) keys_.push_back(static_cast<uint64_t>(i));
  }

  // Applies top_k, then top_p to the rest.
  void keep_best_tokens(const SamplingRow& row) {
    const bool top_k = row.top_k > 0 && row.top_k < n_;
    // Without top_k, all tokens below this weight sum to less than 1 - top_p, so top_p drops them.
    const double threshold =
        top_k ? -1.0
              : 0.5 * (1.0 - static_cast<double>(row.top_p)) * total_ / static_cast<double>(n_);
    keys_.clear();
    for (int64_t i = 0; i < n_; ++i)
      if (weights_[i] > threshold) keys_.push_back(key_of(i));
    double mass = total_;
    if (top_k) {
      std::nth_element(keys_.begin(), keys_.begin() + row.top_k, keys_.end());
      keys_.resize(static_cast<size_t>(row.top_k));
      std::sort(keys_.begin(), keys_.end());
      mass = mass_of(0, keys_.size());
    }
    if (row.top_p < 1.0f) keep_mass(static_cast<double>(row.top_p) * mass);
  }

  double mass_of(size_t begin, size_t end) const {
    double mass = 0.0;
    for (size_t i = begin; i < end; ++i) mass += weight_of(keys_[i]);
    return mass;
  }

  // Keeps the fewest of the best tokens (at least one) whose weights sum to `goal`. Finds the last
  // of them by halving the range that holds it.
  void keep_mass(double goal) {
    size_t begin = 0, end = keys_.size();  // the answer's size is in (begin, end]
    double before = 0.0;
    while (end - begin > 1) {
      const size_t middle = begin + (end - begin) / 2;
      const auto at = [first = keys_.begin()](size_t i) { return first + static_cast<int64_t>(i); };
      std::nth_element(at(begin), at(middle), at(end));
      const double half = mass_of(begin, middle);
      if (before + half >= goal) {
        end = middle;
      } else {
        before += half;
        begin = middle;
      }
    }
    keys_.resize(end);
  }

  int64_t walk_kept(double u) {
    const auto id_of = [](uint64_t key) { return key & 0xFFFFFFFFu; };
    std::sort(keys_.begin(), keys_.end(),
              [&](uint64_t a, uint64_t b) { return id_of(a) < id_of(b); });
    return walk(
        weights_, static_cast<int64_t>(keys_.size()), 0.0, u * mass_of(0, keys_.size()),
        [&](int64_t i) { return static_cast<int64_t>(id_of(keys_[static_cast<size_t>(i)])); });
  }

  const KernelTable& isa_;
  const float* logits_;
  const int64_t n_;
  float maximum_ = 0.0f;
  float* weights_ = nullptr;
  double total_ = 0.0;
  static thread_local std::vector<double> block_ends_;
  static thread_local std::vector<uint64_t> keys_;
};

thread_local std::vector<double> RowSampler::block_ends_;
thread_local std::vector<uint64_t> RowSampler::keys_;

// normalize_logits for rows that are split into `leaves` equal leaves.
void normalize_leaves(Tensor logits, Tensor lse, float temperature, int64_t leaves) {
  if (leaves == 1) return normalize_logits(logits, lse, temperature);
  static thread_local std::vector<float> normalizers;
  const int64_t rows = logits.dim(0), width = logits.dim(1) / leaves;
  normalizers.resize(static_cast<size_t>(leaves * rows));
  const Tensor all(normalizers.data(), tensor::DType::kF32, logits.device(), {leaves, rows});
  for (int64_t l = 0; l < leaves; ++l)
    normalize_logits(logits.columns(l * width, (l + 1) * width),
                     all.rows(l, l + 1).reshaped({rows}), temperature);
  merge_lse(lse, all);
}

}  // namespace

void sample_tokens(Tensor tokens, Tensor log_probs, Tensor logits, Tensor rows,
                   int64_t allowed_tokens, int64_t leaves) {
  const KernelTable& isa = kernels();
  const auto* table = rows.data<SamplingRow>();
  static thread_local std::vector<float> normalizers;
  normalizers.resize(static_cast<size_t>(logits.dim(0)));
  const Tensor lse(normalizers.data(), tensor::DType::kF32, logits.device(), {logits.dim(0)});
  // Normalises runs of rows with the same temperature together; the bits of a row do not depend on
  // its run.
  for (int64_t begin = 0, end; begin < logits.dim(0); begin = end) {
    for (end = begin + 1;
         end < logits.dim(0) && table[end].temperature == table[begin].temperature;)
      ++end;
    normalize_leaves(logits.rows(begin, end), lse.rows(begin, end), table[begin].temperature,
                     leaves);
  }
  const int64_t n = allowed_tokens > 0 ? allowed_tokens : logits.dim(1);
  parallel_for(logits.dim(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row = logits.f32() + r * logits.stride(0);
      const int64_t token = RowSampler(isa, row, n).sample(table[r]);
      tokens.i32()[r] = static_cast<int32_t>(token);
      log_probs.f32()[r] =
          token < 0 ? std::numeric_limits<float>::quiet_NaN() : row[token] - lse.f32()[r];
    }
  });
}

void fill_sampled_tokens(Tensor tokens, Tensor sampled) {
  for (int64_t t = 0; t < tokens.dim(0); ++t) {
    int32_t& token = tokens.i32()[t];
    if (token >= 0) continue;
    SLX_CHECK(~token < sampled.dim(0), "sampled row {} is used, but {} rows were sampled", ~token,
              sampled.dim(0));
    token = std::max(sampled.i32()[~token], 0);
  }
}

}  // namespace slimexx::ops::cpu
