#include "rl/training/sample_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "rl/advantage/estimators.h"
#include "slimexx/io/lines.h"

namespace slimexx::rl {
namespace {

constexpr size_t kMaxNames = 64, kMaxNameBytes = 64;

// Letters, digits, _ . and - stay; anything else becomes _. Empty for an empty name.
std::string metric_part(const std::string& name) {
  std::string part = name.substr(0, kMaxNameBytes);
  for (char& c : part) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '.' || c == '-';
    if (!plain) c = '_';
  }
  return part;
}

}  // namespace

void set_grader_failed(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row) {
  row.set(prefix + "grader_failed",
          static_cast<double>(std::ranges::count(samples, true, &Sample::grader_failed)));
}

void set_grader_values(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row) {
  struct Mean {
    double sum = 0, n = 0;
  };
  std::map<std::string, Mean> means;
  for (const Sample& s : samples) {
    if (s.grader_failed) continue;
    for (const auto& [name, value] : s.values) {
      const std::string part = metric_part(name);
      if (part.empty() || (means.size() >= kMaxNames && !means.contains(part))) continue;
      means[part].sum += value;
      means[part].n += 1;
    }
  }
  for (const auto& [part, mean] : means) row.set(prefix + part, mean.sum / mean.n);
}

std::string name_reward(double reward) {
  return fmt::format("{:.1f}", std::round(reward * 10) / 10 + 0.0);  // + 0.0: not -0
}

void set_zero_std(std::span<const Sample> samples, const std::string& prefix,
                  observe::MetricRow& row) {
  const auto groups = group_samples(samples);
  if (groups.empty()) return;
  double num_flat = 0;
  std::map<std::string, double> counts;  // groups by reward
  for (const auto& group : groups) {
    const double first = shaped_reward(samples[group[0]]);
    if (!std::ranges::all_of(group, [&](size_t i) { return shaped_reward(samples[i]) == first; }))
      continue;
    num_flat += 1;
    counts[name_reward(first)] += 1;
  }
  row.set(prefix + "zero_std/frac", num_flat / static_cast<double>(groups.size()));
  for (const auto& [reward, count] : counts)
    row.set(fmt::format("{}zero_std/count_{}", prefix, reward), count);
}

void set_repetition(std::span<const Sample> samples, const std::string& prefix,
                    observe::MetricRow& row) {
  constexpr size_t kTailBytes = 10000, kFactor = 10;
  double repetitive = 0;
  for (const Sample& s : samples) {
    const std::string_view text = s.response_text;
    if (text.size() <= kTailBytes) continue;
    repetitive +=
        io::compressed_bytes(text.substr(text.size() - kTailBytes)) * kFactor < kTailBytes;
  }
  row.set(prefix + "repetition_frac", repetitive / static_cast<double>(samples.size()));
}

void set_cached_tokens(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row) {
  double cached = 0, prompt = 0;
  for (const Sample& s : samples) {
    cached += static_cast<double>(s.cached_tokens);
    prompt += static_cast<double>(s.prompt_length());
  }
  row.set(prefix + "prefix_cache_hit_rate", prompt > 0 ? cached / prompt : 0);
  row.set(prefix + "avg_cached_tokens_per_sample", cached / static_cast<double>(samples.size()));
}

}  // namespace slimexx::rl
