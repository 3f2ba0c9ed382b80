#include "slimexx/ops/router_balance.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <vector>

#include "ops/cpu/cpu_ops.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::ops::cpu {
namespace {

struct Problem {
  const float* logits;  // [T,E]
  const float* counts;  // [S,E]
  float* dlogits;       // [T,E]
  const PackedSequences& sequences;
  const RouterRule& rule;
  const RouterBalanceRule& balance;
};

// The tokens of one thread, which keeps its own sums.
class TokenRange {
 public:
  explicit TokenRange(const Problem& problem)
      : p_(problem),
        sums_(static_cast<size_t>(count_router_sums(problem.rule.num_experts))),
        scores_(static_cast<size_t>(problem.rule.num_experts)),
        softmax_(scores_.size()) {}

  void run(int64_t begin, int64_t end) {
    const std::span<const int32_t> cu_seqlens = p_.sequences.cu_seqlens;
    auto next = std::upper_bound(cu_seqlens.begin(), cu_seqlens.end(), begin);
    for (int64_t t = begin; t < end; ++t) {
      while (*next <= t) ++next;
      const auto sequence = static_cast<size_t>(next - cu_seqlens.begin() - 1);
      run_token(t, sequence, p_.sequences.lengths[sequence]);
    }
  }
  const std::vector<int64_t>& sums() const { return sums_; }

 private:
  void run_token(int64_t t, size_t sequence, int64_t sequence_tokens) {
    const int64_t n = p_.rule.num_experts;
    const float lse = score(p_.logits + t * n);
    const float* counts = p_.counts + sequence * scores_.size();
    const float to_frequency =
        static_cast<float>(n) / static_cast<float>(p_.rule.top_k * sequence_tokens);
    const float sum = is_softmax() ? 1.0f : total_score();
    float aux = 0;
    for (size_t e = 0; e < scores_.size(); ++e)
      aux += counts[e] * to_frequency * (scores_[e] / sum);
    const double share = kernels::token_share(p_.balance, sequence_tokens);
    for (size_t e = 0; e < scores_.size(); ++e)
      sums_[scores_.size() + e] += kernels::probability_units(scores_[e] / sum);
    sums_[2 * scores_.size()] +=
        kernels::loss_units(aux, kernels::kMostAuxLoss, share, kernels::kAuxLossUnits);
    sums_[2 * scores_.size() + 1] +=
        kernels::loss_units(double{lse} * lse, kernels::kMostZLoss, share, kernels::kZLossUnits);
    if (p_.balance.aux_loss_coeff == 0 && p_.balance.z_loss_coeff == 0) return;
    const float aux_weight = p_.balance.aux_loss_coeff * static_cast<float>(share);
    const float z_weight = 2 * p_.balance.z_loss_coeff * static_cast<float>(share) * lse;
    float* own = p_.dlogits + t * n;
    for (size_t e = 0; e < scores_.size(); ++e) {
      const float slope = is_softmax() ? 1.0f : 1.0f - scores_[e];
      const float frequency = counts[e] * to_frequency;
      own[e] +=
          aux_weight * (scores_[e] / sum) * slope * (frequency - aux) + z_weight * softmax_[e];
    }
  }
  // Fills scores and the softmax; returns the logsumexp.
  float score(const float* logits) {
    const float largest = *std::max_element(logits, logits + softmax_.size());
    float sum = 0;
    for (size_t e = 0; e < softmax_.size(); ++e) sum += softmax_[e] = std::exp(logits[e] - largest);
    for (size_t e = 0; e < softmax_.size(); ++e) {
      softmax_[e] /= sum;
      scores_[e] = is_softmax() ? softmax_[e] : 1.0f / (1.0f + std::exp(-logits[e]));
    }
    return largest + std::log(sum);
  }
  float total_score() const {
    return std::accumulate(scores_.begin(), scores_.end(), kernels::kLeastScore);
  }
  bool is_softmax() const { return p_.rule.score == RouterScore::kSoftmax; }

  const Problem& p_;
  std::vector<int64_t> sums_;
  std::vector<float> scores_, softmax_;  // [E], for the current token
};

}  // namespace

void count_choices(Tensor counts, Tensor sums, Tensor ids, const PackedSequences& sequences) {
  auto* loads = sums.data<int64_t>();
  const int64_t experts = counts.dim(1), top_k = ids.dim(1);
  fill_zero(counts);
  for (int64_t s = 0; s < sequences.count(); ++s) {
    const auto i = static_cast<size_t>(s);
    for (int64_t c = sequences.cu_seqlens[i] * top_k; c < sequences.cu_seqlens[i + 1] * top_k;
         ++c) {
      counts.f32()[s * experts + ids.i32()[c]] += 1;
      ++loads[ids.i32()[c]];
    }
  }
}

void balance_router(Tensor dlogits, Tensor sums, Tensor counts, Tensor logits,
                    const PackedSequences& sequences, const RouterRule& rule,
                    const RouterBalanceRule& balance) {
  auto* all = sums.data<int64_t>();
  const Problem problem{logits.f32(), counts.f32(), dlogits.f32(), sequences, rule, balance};
  std::mutex mutex;
  parallel_for(logits.dim(0), 64, [&](int64_t begin, int64_t end) {
    TokenRange range(problem);
    range.run(begin, end);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < range.sums().size(); ++i) all[i] += range.sums()[i];
  });
}

void move_router_bias(Tensor bias, Tensor sums, float rate) {
  const int64_t experts = bias.dim(0);
  const auto* loads = sums.data<int64_t>();
  const int64_t total = std::accumulate(loads, loads + experts, int64_t{0});
  for (int64_t e = 0; e < experts; ++e)
    bias.f32()[e] = kernels::move_bias(bias.f32()[e], loads[e], total, experts, rate);
}

}  // namespace slimexx::ops::cpu
