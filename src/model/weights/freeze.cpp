#include "slimexx/model/freeze.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/model/families.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/text/name_pattern.h"

namespace slimexx::model {
namespace {

constexpr const char* kFreezeKey = "train.freeze_params_name_list";
constexpr const char* kOnlyKey = "train.only_train_params_name_list";
constexpr size_t kShownNames = 3;

// Replaces numbers by N, as in "model.layers.N.mlp.experts.N.up_proj.weight".
std::string without_numbers(const std::string& name) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  std::string kind;
  for (size_t i = 0; i < name.size(); ++i) {
    kind += name[i];
    if (name[i] != '.' || i + 1 == name.size() || !is_digit(name[i + 1])) continue;
    kind += 'N';
    while (i + 1 < name.size() && is_digit(name[i + 1])) ++i;
  }
  return kind;
}

size_t longest_common_part(std::string_view a, std::string_view b) {
  std::vector<size_t> ends(b.size() + 1,
                           0);  // [j]: length of the common part that ends with b[j - 1]
  size_t longest = 0;
  for (const char c : a) {
    for (size_t j = b.size(); j > 0; --j) {
      ends[j] = b[j - 1] == c ? ends[j - 1] + 1 : 0;
      longest = std::max(longest, ends[j]);
    }
  }
  return longest;
}

// Names that share the longest substring with the pattern come first.
std::string show_near_names(const std::string& pattern, const std::set<std::string>& names) {
  std::set<std::string> kinds;
  for (const std::string& name : names) kinds.insert(without_numbers(name));
  std::vector<std::pair<size_t, std::string>> near;
  for (const std::string& kind : kinds) near.emplace_back(longest_common_part(pattern, kind), kind);
  std::ranges::stable_sort(near, std::greater<>(), &std::pair<size_t, std::string>::first);
  std::string text = "tensor names look like ";
  for (size_t i = 0; i < std::min(kShownNames, near.size()); ++i)
    text += (i > 0 ? ", " : "") + near[i].second;
  return text;
}

// The regular expressions of one configuration key.
class NamePatterns {
 public:
  NamePatterns(const std::vector<std::string>& patterns, const char* key) : key_(key) {
    for (const std::string& pattern : patterns)
      patterns_.push_back({text::NamePattern(pattern, key)});
  }
  bool empty() const { return patterns_.empty(); }
  const char* key() const { return key_; }
  bool find_in(const std::string& name) {
    bool found = false;
    for (Pattern& pattern : patterns_) {
      if (!pattern.expression.is_found_in(name)) continue;
      pattern.is_used = found = true;
    }
    return found;
  }
  void check_used(const std::set<std::string>& names) const {
    for (const Pattern& pattern : patterns_)
      if (!pattern.is_used)
        throw Error(ErrorCode::kUsage,
                    fmt::format("\"{}\" matches no tensor name", pattern.expression.text()),
                    show_near_names(pattern.expression.text(), names), key_);
  }

 private:
  struct Pattern {
    text::NamePattern expression;
    bool is_used = false;
  };
  const char* key_;
  std::vector<Pattern> patterns_;
};

// Whether the patterns match the parameter. They must match all tensors of the parameter or none.
bool names_parameter(NamePatterns& patterns, const ParameterInfo& info) {
  const std::string *named = nullptr, *other = nullptr;
  for (const HfPart& part : info.parts) (patterns.find_in(part.name) ? named : other) = &part.name;
  if (named == nullptr || other == nullptr) return named != nullptr;
  throw Error(ErrorCode::kUsage,
              fmt::format("{} matches and {} does not, but here both tensors form one matrix, {}",
                          *named, *other, info.name),
              "match all of its tensors or none", patterns.key());
}

}  // namespace

void freeze_parameters(ModelSpec& spec, const std::vector<std::string>& frozen,
                       const std::vector<std::string>& only) {
  NamePatterns frozen_patterns(frozen, kFreezeKey), only_patterns(only, kOnlyKey);
  spec.frozen.clear();
  const std::vector<ParameterInfo> infos = list_parameters(spec);
  std::set<std::string> names;
  bool is_any_trained = false, is_any_left = false;
  for (const ParameterInfo& info : infos) {
    for (const HfPart& part : info.parts) names.insert(part.name);
    const bool is_frozen = names_parameter(frozen_patterns, info);
    const bool is_left = only_patterns.empty() || names_parameter(only_patterns, info);
    if (is_frozen || !is_left) {
      spec.frozen.push_back(info.name);
    } else {
      is_any_left = true;
      is_any_trained |= info.trainable;
    }
  }
  std::ranges::sort(spec.frozen);
  frozen_patterns.check_used(names);
  only_patterns.check_used(names);
  if (is_any_trained) return;
  const bool names_untrained = !only.empty() && is_any_left;
  throw Error(ErrorCode::kUsage,
              names_untrained ? "nothing is left to train: the matching tensors are never trained "
                                "(correction biases, indexers, untrained MTP layers)"
                              : "nothing is left to train",
              names_untrained ? "match tensors that can be trained, too" : "match fewer tensors",
              only.empty() ? kFreezeKey : kOnlyKey);
}

}  // namespace slimexx::model
