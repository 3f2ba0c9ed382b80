#include "slimexx/reward/rewards.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "reward/answers/text_scan.h"
#include "reward/data_sets.h"
#include "reward/graders.h"
#include "reward/label.h"
#include "reward/remote/remote.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kBoxedPrefix = "boxed_";

struct RuleGrader {
  const char* name;
  const char* doc;
  Grade (*grade)(const RewardInput&);
  std::vector<std::string> keys;                      // of Grade::values
  std::string (*give)(const RewardInput&) = nullptr;  // null: the label itself
  bool reads_label = true;
  const char* instead_of_boxed = "";  // see RewardInfo
};

// To add a grader, add an entry here and a file.
const std::vector<RuleGrader>& rule_graders() {
  static const std::vector<RuleGrader> kGraders = {
      {"deepscaler",
       "1 if the \\boxed answer after </think> equals the label, otherwise 0",
       grade_deepscaler,
       {},
       give_deepscaler,
       true,
       "deepscaler itself reads the box after </think>: use deepscaler, or math if the model has "
       "no reasoning block"},
      {"dapo",
       "+1 if the last 'Answer: ...' equals the label (an integer), otherwise -1",
       grade_dapo,
       {"score", "acc"},
       give_dapo,
       true,
       "dapo itself finds 'Answer:' outside the box and removes the box: use dapo, or math"},
      {"gsm8k",
       "1 if the response's number (after the last '####', otherwise the last one) equals the "
       "label's, otherwise 0",
       grade_gsm8k,
       {"strict"},
       give_gsm8k},
      {"math",
       "1 if the final answer equals the label by exact value, otherwise 0",
       grade_math,
       {},
       give_math},
      {"gpqa",
       "1 for the correct letter or text of a multiple choice, otherwise 0",
       grade_gpqa,
       {},
       give_gpqa},
      {"f1",
       "F1 overlap of the words of response and label, 0 to 1",
       grade_f1,
       {"f1", "precision", "recall"}},
      {"random", "0 or 1 at random, from the sample's seed", grade_random, {}, nullptr, false},
  };
  return kGraders;
}

const RuleGrader* find_rule_grader(std::string_view name) {
  for (const RuleGrader& grader : rule_graders()) {
    if (name == grader.name) return &grader;
  }
  return nullptr;
}

std::string_view without_prefix(std::string_view rm_type) {
  return rm_type.starts_with(kBoxedPrefix) ? rm_type.substr(kBoxedPrefix.size()) : rm_type;
}

[[noreturn]] void refuse_type(ErrorCode code, const std::string& rm_type,
                              const std::string& where) {
  std::vector<std::string> names;
  for (const RewardInfo& info : list_rewards()) names.push_back(info.name);
  const std::string known = grader_of_data_set(without_prefix(rm_type));
  const auto nearest =
      known.empty() ? nearest_name(without_prefix(rm_type), names) : std::optional(known);
  throw Error(code, fmt::format("there is no rm_type '{}'", shorten(rm_type)),
              (nearest ? fmt::format("did you mean '{}'? ", *nearest) : "") +
                  fmt::format("rm_type is one of {}, most also with the prefix boxed_",
                              fmt::join(names, ", ")),
              where);
}

void check_reward_key(const RuleGrader& grader, const std::string& key) {
  if (key.empty() || std::find(grader.keys.begin(), grader.keys.end(), key) != grader.keys.end())
    return;
  throw Error(ErrorCode::kUsage,
              fmt::format("rm_type {} gives no value '{}'", grader.name, shorten(key)),
              grader.keys.empty()
                  ? std::string("leave reward_key empty: this grader gives a plain number")
                  : fmt::format("reward_key is one of {}, or empty", fmt::join(grader.keys, ", ")));
}

RewardInput reduce_to_box(const RewardInput& input) {
  RewardInput reduced = input;
  reduced.response.clear();
  read_final_box(input.response, reduced.response);
  return reduced;
}

// The grader for one row: that of the configured rm_type, or the one that the row's metadata names.
struct Assignment {
  const RuleGrader* rule = nullptr;  // null: remote
  bool boxed = false;
};

Assignment assign(const std::string& rm_type, ErrorCode code, const std::string& where) {
  const std::string_view name = without_prefix(rm_type);
  const Assignment out{find_rule_grader(name), name.size() < rm_type.size()};
  if (!out.rule && name != "remote") refuse_type(code, rm_type, where);
  if (out.rule && out.boxed && *out.rule->instead_of_boxed != '\0') {
    throw Error(code, fmt::format("with rm_type '{}' no response can be right", rm_type),
                out.rule->instead_of_boxed, where);
  }
  return out;
}

// nullopt if the row's metadata name no rm_type.
std::optional<Assignment> assign_own(const RewardInput& row, const std::string& where) {
  const Json* named = find_metadata(row, "rm_type");
  if (!named || named->is_null() || *named == "") return std::nullopt;
  return assign(named->is_string() ? named->get<std::string>() : named->dump(), ErrorCode::kInput,
                where);
}

Grade grade_answer(const Assignment& assignment, const RewardInput& input) {
  return assignment.rule->grade(assignment.boxed ? reduce_to_box(input) : input);
}

// Whether `a` is the better grade. A failed grade is worse than any other.
bool is_better(const Grade& a, const Grade& b) {
  return a.failed != b.failed ? b.failed : a.reward > b.reward;
}

// If the label accepts several answers, the best grade counts.
Grade grade_by_rule(const Assignment& assignment, const RewardInput& input) {
  if (!assignment.rule->reads_label) return grade_answer(assignment, input);
  const Label label = read_answers(input.label);
  if (!label.fault.empty()) return failed_grade(label.fault);
  if (label.answers.size() == 1 && label.answers[0] == input.label)
    return grade_answer(assignment, input);
  RewardInput one = input;
  std::optional<Grade> best;
  for (const std::string& answer : label.answers) {
    one.label = answer;
    Grade grade = grade_answer(assignment, one);
    if (!best || is_better(grade, *best)) best = std::move(grade);
  }
  return *best;
}

// The reason why no response can be right by the row's label: grading always fails, or the label
// itself earns less than the full reward. Empty if the label can be used.
std::string find_label_fault(const RuleGrader& rule, RewardInput row) {
  row.response.clear();
  if (const Grade grade = rule.grade(row); grade.failed) return grade.reason;
  row.response = rule.give ? rule.give(row) : row.label;
  const Grade own = rule.grade(row);
  if (own.failed) return own.reason;
  if (own.reward >= 1) return "";
  return fmt::format("the label itself, as the response, earns {}: {}", own.reward, own.reason);
}

class TableGrader : public Grader {
 public:
  explicit TableGrader(const RewardOptions& options) : options_(options) {
    own_ = assign(options.rm_type, ErrorCode::kUsage, "rm_type");
    if (own_.rule) {
      check_reward_key(*own_.rule, options.reward_key);
    } else {
      remote();
    }
  }

  std::vector<Grade> grade(std::span<const RewardInput> inputs) override {
    const std::vector<Assignment> assignments = assign_all(inputs);
    std::vector<Grade> grades(inputs.size());
    parallel_for(static_cast<int64_t>(inputs.size()), 1, [&](int64_t begin, int64_t end) {
      for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        if (assignments[i].rule) grades[i] = apply_rule(assignments[i], inputs[i]);
      }
    });
    grade_remotely(inputs, assignments, grades);
    return grades;
  }

 private:
  std::vector<Assignment> assign_all(std::span<const RewardInput> inputs) const {
    std::vector<Assignment> out;
    for (const RewardInput& input : inputs)
      out.push_back(assign_own(input, "metadata key rm_type of a prompt").value_or(own_));
    return out;
  }

  Grade apply_rule(const Assignment& assignment, const RewardInput& input) const {
    Grade grade = grade_by_rule(assignment, input);
    // Rows of another rm_type may lack the key; then their own reward stays.
    const auto value = grade.values.find(options_.reward_key);
    if (!grade.failed && !options_.reward_key.empty() && value != grade.values.end())
      grade.reward = value->second;
    return grade;
  }

  void grade_remotely(std::span<const RewardInput> inputs,
                      const std::vector<Assignment>& assignments, std::vector<Grade>& grades) {
    std::vector<RewardInput> chosen;
    std::vector<size_t> places;
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (assignments[i].rule) continue;
      chosen.push_back(assignments[i].boxed ? reduce_to_box(inputs[i]) : inputs[i]);
      places.push_back(i);
    }
    if (chosen.empty()) return;
    std::vector<Grade> answers = remote().grade(chosen);
    for (size_t i = 0; i < places.size(); ++i) grades[places[i]] = std::move(answers[i]);
  }

  Grader& remote() {
    const std::lock_guard lock(remote_mutex_);
    if (!remote_) remote_ = make_remote_grader(options_);
    return *remote_;
  }

  RewardOptions options_;
  Assignment own_;
  std::mutex remote_mutex_;
  std::unique_ptr<Grader> remote_;
};

}  // namespace

const std::vector<RewardInfo>& list_rewards() {
  static const std::vector<RewardInfo> kInfos = [] {
    std::vector<RewardInfo> infos;
    for (const RuleGrader& grader : rule_graders())
      infos.push_back({grader.name, grader.doc, grader.instead_of_boxed});
    infos.push_back({"remote", "the reward from the HTTP service at rm_url", ""});
    return infos;
  }();
  return kInfos;
}

std::unique_ptr<Grader> make_grader(const RewardOptions& options) {
  return std::make_unique<TableGrader>(options);
}

void check_own_rm_type(const RewardInput& row) { assign_own(row, ""); }

LabelTrial try_label(const std::string& rm_type, const RewardInput& row) {
  const auto own = assign_own(row, "");
  const Assignment assignment = own ? *own : assign(rm_type, ErrorCode::kUsage, "rm_type");
  if (!assignment.rule || !assignment.rule->reads_label) return {};
  const Label label = read_answers(row.label);
  LabelTrial trial{true, label.fault};
  RewardInput one = row;
  for (const std::string& answer : label.answers) {
    one.label = answer;
    const std::string fault = find_label_fault(*assignment.rule, one);
    if (fault.empty()) return {true, ""};  // the best answer counts
    if (trial.fault.empty()) trial.fault = fault;
  }
  return trial;
}

}  // namespace slimexx::reward
