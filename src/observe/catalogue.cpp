#include <fmt/core.h>

#include <string>
#include <unordered_map>

#include "slimexx/observe/metrics.h"

namespace slimexx::observe {
namespace {

// Whether `name` is in the family `pattern`. Each star matches one or more characters except '/'.
bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == std::string_view::npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t end = star; end < name.size() && name[end] != '/'; ++end)
    if (matches(rest, name.substr(end + 1))) return true;
  return false;
}

constexpr const char* kTableHead = "| name | unit | meaning | healthy |\n|---|---|---|---|\n";

struct Index {
  std::unordered_map<std::string_view, const MetricInfo*> exact;
  std::vector<const MetricInfo*> families;  // in catalogue order, most specific first
};

const Index& catalogue_index() {
  static const Index index = [] {
    Index built;
    for (const MetricInfo& info : metric_catalogue()) {
      if (info.name.find('*') == std::string_view::npos) {
        built.exact.emplace(info.name, &info);
      } else {
        built.families.push_back(&info);
      }
    }
    return built;
  }();
  return index;
}

}  // namespace

const std::vector<MetricInfo>& metric_catalogue() {
  static const std::vector<MetricInfo> catalogue = {
#define SLX_METRIC(name, unit, meaning, healthy) {name, unit, meaning, healthy},
#define SLX_STATISTICS(name, unit, meaning, healthy)    \
  {name "/mean", unit, "Mean of " meaning, healthy},    \
      {name "/median", unit, "Median of " meaning, ""}, \
      {name "/max", unit, "Maximum of " meaning, ""},   \
      {name "/min", unit, "Minimum of " meaning, ""},
#include "observe/metrics.def"
#undef SLX_METRIC
#undef SLX_STATISTICS
  };
  return catalogue;
}

const MetricInfo* find_metric(std::string_view name) {
  const Index& index = catalogue_index();
  if (const auto found = index.exact.find(name); found != index.exact.end()) return found->second;
  for (const MetricInfo* family : index.families)
    if (matches(family->name, name)) return family;
  return nullptr;
}

std::string write_metrics_reference() {
  std::string out =
      "# Metrics\n"
      "\n"
      "Written by the program from its catalogue; do not edit. A `*` stands for any name without "
      "a\n"
      "slash, such as that of an evaluation set. The keys of `metrics.jsonl` (one row per rollout) "
      "and\n"
      "of `train_steps.jsonl` (one row per optimizer step), and the scalars of TensorBoard, are "
      "listed\n"
      "below. Rows have these keys in addition: `step`, the number of the rollout in "
      "`metrics.jsonl`\n"
      "(-1: the evaluation before training) and of the optimizer step in `train_steps.jsonl` (from "
      "1);\n"
      "`rollout`, the number of the step's rollout (only in `train_steps.jsonl`); `wall_time`, the "
      "time\n"
      "of writing in seconds since 1970.\n"
      "A row has only the metrics that apply: no `train/kl_loss` without a KL term, no `eval/`\n"
      "between evaluations.\n";
  std::string_view group;
  for (const MetricInfo& info : metric_catalogue()) {
    const std::string row =
        fmt::format("| `{}` | {} | {} | {} |\n", info.name, info.unit.empty() ? "-" : info.unit,
                    info.meaning, info.healthy.empty() ? "-" : info.healthy);
    const std::string_view prefix = info.name.substr(0, info.name.find('/'));
    if (prefix != group) out += fmt::format("\n## {}\n\n{}", prefix, kTableHead);
    group = prefix;
    out += row;
  }
  return out;
}

}  // namespace slimexx::observe
