#include "rollout/drafting/draft_gate.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "slimexx/model/describe.h"
#include "slimexx/model/families.h"
#include "slimexx/rollout/decode_rates.h"

namespace slimexx::rollout {
namespace {

// Assumed prior: this many drafts were offered at each place, and each was accepted with this
// probability, given that all drafts before it were accepted.
constexpr double kFirstOffered = 16, kFirstShare = 0.7;
// A step with drafts can only launch after the samples of the step before are known, so the device
// waits for the host: up to 1 % of the time of such steps on an H200. Another 1 % is assumed for
// other waits.
constexpr double kWait = 1.02;
// Counts are halved when they reach this number, so older drafts weigh less. An assumed value.
constexpr double kMemory = 4096;

double count_elements(const model::ParameterCounts& counts, const char* part) {
  const auto found = std::ranges::find(counts.parts, part, &model::PartCount::name);
  return found == counts.parts.end() ? 0 : static_cast<double>(found->elements);
}

// The time in which a layer's kernels wait for one another, converted to bytes at copy bandwidth.
double waits_of(const model::LayerSpec& layer, const tensor::DecodeRates& rates) {
  return rates.copy_bytes_per_s * layer_wait_seconds(layer, rates.waits);
}

// Elements of the first MTP layer, without its copies of embedding and head.
struct GuessElements {
  double experts = 0, rest = 0;
};
GuessElements count_guess_elements(const model::ModelSpec& spec) {
  GuessElements n;
  const std::string own = fmt::format("layers.{}.", spec.num_layers());
  for (const model::ParameterInfo& info : model::list_parameters(spec)) {
    if (!info.name.starts_with(own) || info.name == own + "embedding.weight" ||
        info.name == own + "head.weight")
      continue;
    const bool is_expert = info.reduce_group == model::ReduceGroup::kExpert;
    (is_expert ? n.experts : n.rest) += static_cast<double>(info.num_elements());
  }
  return n;
}

}  // namespace

double DecodeCost::of_rows(double rows, double context) const {
  return dense + waits + experts * model::share_of_experts(expert_rate, rows * rows_of_row) +
         rows * (row + context * cached_token);
}

double DecodeCost::of_step(double sequences, double drafts, double context) const {
  const auto guess_of = [&](double rows) {
    return guess + guess_experts * model::share_of_experts(expert_rate, rows * rows_of_row);
  };
  const double rows = sequences * (drafts + 1);
  return of_rows(rows, context) + guess_of(rows) + drafts * guess_head +
         std::max(0.0, drafts - 1) * guess_of(sequences);
}

DecodeCost decode_cost(const model::ModelSpec& spec, const dist::Groups& groups,
                       const DecodeSetting& setting) {
  const model::ParameterCounts counts = model::count_parameters(spec);
  const double experts = count_elements(counts, "experts");
  const double unread = count_elements(counts, "multi-token prediction") +
                        (spec.tied_embeddings ? 0 : count_elements(counts, "embedding"));
  const double tp = groups.tp.size(), of_experts = groups.ep.size() * groups.etp.size();
  const auto width = static_cast<double>(setting.element_bytes);
  DecodeCost cost{.dense = (static_cast<double>(counts.total) - experts - unread) / tp * width,
                  .experts = experts / of_experts * width,
                  .expert_rate = model::expert_rate(spec),
                  .rows_of_row = std::max(1.0, of_experts / tp),
                  .row = bytes_of_logits(spec),
                  .cached_token = setting.cached_token};
  for (const model::LayerSpec& layer : spec.layers) cost.waits += waits_of(layer, setting.rates);
  if (!setting.drafts_by_mtp) return cost;
  const GuessElements elements = count_guess_elements(spec);
  cost.guess = elements.rest / tp * width + waits_of(spec.mtp[0].layer, setting.rates);
  cost.guess_experts = elements.experts / of_experts * width;
  cost.guess_head = static_cast<double>(spec.vocab_size * spec.hidden_size) / tp * width;
  return cost;
}

DraftGate::DraftGate(int64_t most, const DecodeCost& cost) : cost_(cost) {
  double right = kFirstOffered;
  for (int64_t i = 0; i < most; ++i)
    counts_.push_back({.offered = kFirstOffered, .right = right *= kFirstShare});
}

int64_t DraftGate::choose(int64_t running, double context, int64_t most) {
  most = std::clamp<int64_t>(most, 0, std::ssize(counts_));
  ++calls_;
  const auto rows = static_cast<double>(running);
  double tokens = 1, best = 1 / cost_.of_step(rows, 0, context);
  last_ = 0;
  for (int64_t n = 1; n <= most; ++n) {
    const Count& count = counts_[static_cast<size_t>(n - 1)];
    tokens += count.right / count.offered;
    const double rate = tokens / (kWait * cost_.of_step(rows, static_cast<double>(n), context));
    if (rate > best) best = rate, last_ = n;
  }
  return calls_ % kProbeCalls == 0 ? most : last_;
}

void DraftGate::record(int64_t offered, int64_t accepted) {
  for (int64_t i = 0; i < std::min<int64_t>(offered, std::ssize(counts_)); ++i) {
    Count& count = counts_[static_cast<size_t>(i)];
    ++count.offered;
    if (i < accepted) ++count.right;
    if (count.offered >= kMemory) count.offered /= 2, count.right /= 2;
  }
}

}  // namespace slimexx::rollout
