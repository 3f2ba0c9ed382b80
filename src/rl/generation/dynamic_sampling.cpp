#include "rl/generation/dynamic_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "rl/advantage/estimators.h"
#include "rl/training/sample_metrics.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/agreement.h"

namespace slimexx::rl {
namespace {

constexpr std::string_view kModuleOfSlime = "slime.rollout.filter_hub.dynamic_sampling_filters.";
constexpr const char* kFilterKey = "rollout.dynamic_sampling_filter_path";
constexpr double kLeastStd = 1e-6;  // as in slime
constexpr const char* kGraderFailed = "grader_failed";

// The groups that are taken so far.
class Selection {
 public:
  Selection(const DynamicFilter& filter, int64_t wanted, int64_t group_size)
      : filter_(filter), wanted_(wanted), group_size_(static_cast<size_t>(group_size)) {}

  int64_t missing() const { return wanted_ - num_taken_; }
  // The number of groups to draw next: those that yield the missing ones at the present share of
  // kept groups, plus two standard deviations of a binomial. The margin avoids further draws: each
  // takes as long as its longest response, however few groups it has.
  int64_t next_draw() const {
    if (num_kept_ == 0) return INT64_MAX;
    const auto want = static_cast<double>(missing());
    const double share =
        static_cast<double>(num_kept_) / static_cast<double>(drawn_.num_drawn_groups);
    return static_cast<int64_t>(std::ceil((want + 2 * std::sqrt(want * (1 - share))) / share));
  }
  int64_t dropped_in_a_row() const { return dropped_in_a_row_; }
  const DrawnSamples& drawn() const { return drawn_; }

  void add(std::vector<Sample> samples) {
    std::vector<std::pair<std::span<Sample>, std::string>> dropped;
    for (size_t begin = 0; begin < samples.size(); begin += group_size_) {
      const std::span<Sample> group = std::span(samples).subspan(begin, group_size_);
      ++drawn_.num_drawn_groups;
      std::string reason = find_drop_reason(group);
      if (reason.empty()) {
        dropped_in_a_row_ = 0;
        ++num_kept_;
        take(group);
      } else {
        ++dropped_in_a_row_;
        dropped.emplace_back(group, std::move(reason));
      }
    }
    for (const auto& [group, reason] : dropped) {
      if (filter_.keeps_rest && missing() > 0) {
        take(group);
      } else {
        ++drawn_.drop_reasons[reason];
      }
    }
  }
  DrawnSamples finish() {
    std::ranges::sort(drawn_.samples, {},
                      [](const Sample& s) { return std::pair(s.group, s.sample); });
    return std::move(drawn_);
  }

 private:
  void take(std::span<Sample> group) {
    if (missing() == 0) return;
    ++num_taken_;
    for (Sample& s : group) drawn_.samples.push_back(std::move(s));
  }

  const DynamicFilter filter_;
  const int64_t wanted_;
  const size_t group_size_;
  int64_t num_taken_ = 0, num_kept_ = 0, dropped_in_a_row_ = 0;
  DrawnSamples drawn_;
};

std::string text_of_reasons(const DrawnSamples& drawn) {
  std::string text;
  for (const auto& [reason, count] : drawn.drop_reasons)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, reason);
  return text;
}

}  // namespace

std::optional<DynamicFilter> find_dynamic_filter(const std::string& name) {
  std::string_view own = name;
  if (own.starts_with(kModuleOfSlime)) own.remove_prefix(kModuleOfSlime.size());
  if (own == "check_reward_nonzero_std") return DynamicFilter{};
  if (own == "check_reward_nonzero_std_with_fallback") return DynamicFilter{.keeps_rest = true};
  return std::nullopt;
}

std::string find_drop_reason(std::span<const Sample> group) {
  const auto graded = sample::group_samples(group);
  if (graded.empty() || graded[0].size() < 2) return kGraderFailed;
  if (group_deviation(group, graded[0], graded_reward) > kLeastStd) return "";
  return "zero_std_" + name_reward(group[graded[0][0]].reward);
}

DrawnSamples fill_rollout(const DynamicFilter& filter, const RolloutOptions& options,
                          int64_t most_dropped,
                          const std::function<std::vector<Sample>(int64_t)>& draw,
                          const std::string& label) {
  const int64_t wanted = options.rollout_batch_size;
  const int64_t at_once = options.over_sampling_batch_size.value_or(wanted);
  Selection selection(filter, wanted, options.n_samples_per_prompt);
  while (selection.missing() > 0) {
    if (selection.dropped_in_a_row() >= most_dropped) {
      const auto& reasons = selection.drawn().drop_reasons;
      const bool has_no_grades = reasons.size() == 1 && reasons.contains(kGraderFailed);
      throw dist::AgreedError(Error(  // all ranks have the same samples
          ErrorCode::kRun,
          fmt::format("{}: the last {} groups were all dropped ({} in total), and {} of {} groups "
                      "are still missing",
                      label, selection.dropped_in_a_row(), text_of_reasons(selection.drawn()),
                      selection.missing(), wanted),
          has_no_grades ? "fix the labels, reward.rm_type or the service"
                        : "check the grader (slimexx grade); use more samples per prompt, or "
                          "prompts that are neither too easy nor too hard",
          kFilterKey));
    }
    const int64_t num_drawn = selection.drawn().num_drawn_groups;
    if (num_drawn > 0)
      log_debug("{}: {} of {} groups are missing after {} were drawn ({} dropped)", label,
                selection.missing(), wanted, num_drawn, text_of_reasons(selection.drawn()));
    selection.add(draw(std::min(at_once, selection.next_draw())));
  }
  return selection.finish();
}

void check_dynamic_sampling(
    const RolloutOptions& options,
    const std::function<void(const char*, const std::string&, const std::string&)>& fault) {
  constexpr const char* kOverKey = "rollout.over_sampling_batch_size";
  const std::string& name = options.dynamic_sampling_filter_path;
  const auto& over = options.over_sampling_batch_size;
  if (over && *over < options.rollout_batch_size) {
    fault(kOverKey,
          fmt::format("is {}, below rollout_batch_size {}", *over, options.rollout_batch_size),
          "raise it, or leave it out");
  } else if (over && *over > options.rollout_batch_size && name.empty()) {
    fault(kOverKey,
          fmt::format("is {}, but without a filter all {} groups are kept", *over,
                      options.rollout_batch_size),
          "leave it out, or set dynamic_sampling_filter_path; keeping the groups that finish first "
          "would prefer short responses");
  }
  if (name.empty()) return;
  if (!find_dynamic_filter(name)) {
    fault(kFilterKey, fmt::format("is not the name of a filter: {}", name),
          "use check_reward_nonzero_std, or check_reward_nonzero_std_with_fallback, which draws "
          "only once");
  } else if (options.n_samples_per_prompt < 2) {
    fault(kFilterKey,
          "drops groups with equal rewards, which is every group if n_samples_per_prompt is 1",
          "raise n_samples_per_prompt");
  }
}

}  // namespace slimexx::rl
