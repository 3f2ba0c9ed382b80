#include "cli/rows/shown_sample.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "slimexx/base/error.h"
#include "slimexx/observe/console.h"

namespace slimexx::cli {
namespace {

[[noreturn]] void fail(const std::string& key, const char* wanted, const std::string& where) {
  throw Error(ErrorCode::kInput, fmt::format("key \"{}\" must be {}", key, wanted),
              "slimexx samples reads files RUN/samples/*.jsonl.zst written by training", where);
}

std::string text_of(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || it->is_null()) return "";
  if (!it->is_string()) fail(key, "a text", where);
  return it->get<std::string>();
}

int64_t count_of(const Json& object, const char* key, const std::string& where) {
  return object.contains(key) ? json_int(object, key, where) : 0;
}

// The mean of "advantages" over tokens with "loss_mask" 1; over all if there is no mask.
std::optional<double> mean_advantage(const Json& object, const std::string& where) {
  const auto it = object.find("advantages");
  if (it == object.end() || it->is_null()) return std::nullopt;
  if (!it->is_array()) fail("advantages", "a list of numbers", where);
  const auto mask = object.find("loss_mask");
  const bool masked = mask != object.end() && mask->is_array() && mask->size() == it->size();
  double sum = 0, n = 0;
  for (size_t t = 0; t < it->size(); ++t) {
    if (masked && (*mask)[t] != 1) continue;
    if (!(*it)[t].is_number()) return std::nan("");
    sum += (*it)[t].get<double>();
    n += 1;
  }
  if (n == 0) return std::nullopt;
  return sum / n;
}

// Keeps line breaks and shows other control characters as symbols.
std::string safe_text(const std::string& text) {
  std::string out;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    out += observe::fit_text(line, static_cast<int64_t>(2 * line.size() + 2));
    if (end < text.size()) out += '\n';
    begin = end + 1;
  }
  return out;
}

// The origin as the console prints it. An evaluation's number counts the rollouts before it.
std::string describe_origin(const ShownSample& s) {
  if (!s.of_evaluation) return fmt::format("rollout {}", *s.rollout);
  if (*s.rollout == 0) return "evaluation before training";
  return fmt::format("evaluation after rollout {}", *s.rollout - 1);
}

std::string on_one_line(const std::string& text) {
  return observe::fit_text(text, static_cast<int64_t>(2 * text.size() + 2));
}

}  // namespace

ShownSample read_shown_sample(const Json& object, bool of_evaluation, const std::string& where) {
  ShownSample s;
  s.of_evaluation = of_evaluation;
  if (object.contains("rollout")) s.rollout = json_int(object, "rollout", where);
  s.group = json_int(object, "group", where);
  s.sample = json_int(object, "sample", where);
  s.response_length = json_int(object, "response_length", where);
  s.prompt_length = count_of(object, "prompt_length", where);
  const auto tokens = object.find("tokens");
  if (tokens != object.end() && tokens->is_array())
    s.prompt_length = static_cast<int64_t>(tokens->size()) - s.response_length;
  s.weight_versions = sample::read_weight_versions(object, s.response_length, where);
  s.reward = json_number(object, "reward", where);
  s.grader_failed = object.contains("grader_failed") && object.at("grader_failed") == true;
  s.advantage = mean_advantage(object, where);
  s.status = text_of(object, "status", where);
  s.prompt = text_of(object, "prompt", where);
  s.response = text_of(object, "response", where);
  s.label = text_of(object, "label", where);
  s.reason = text_of(object, "reason", where);
  s.prediction = text_of(object, "prediction", where);
  const auto values = object.find("values");
  if (values == object.end() || values->is_null()) return s;
  if (!values->is_object()) fail("values", "an object of numbers", where);
  for (const auto& [name, value] : values->items()) {
    if (!value.is_number()) fail("values", "an object of numbers", where);
    s.values.emplace_back(name, value.get<double>());
  }
  return s;
}

std::string format_sample(const ShownSample& s) {
  std::string head = "==== ";
  if (s.rollout) head += describe_origin(s) + "  ";
  head += fmt::format("group {}  sample {}  ", s.group, s.sample);
  head += s.grader_failed ? "not graded" : fmt::format("reward {:g}", s.reward);
  if (s.advantage) head += fmt::format("  advantage {:.4g}", *s.advantage);
  head += "  " + on_one_line(s.status);
  for (const char* before = "  weights of step "; const auto& span : s.weight_versions)
    head += fmt::format("{}{}", std::exchange(before, ", "), span.version);
  head += '\n';
  const auto line = [&](const char* name, const std::string& text) {
    if (!text.empty()) head += fmt::format("{:<12}{}\n", name, on_one_line(text));
  };
  line("label", s.label);
  line("prediction", s.prediction);
  line("reason", s.reason);
  std::string values;
  for (const auto& [name, value] : s.values)
    values += fmt::format("{}{} {:g}", values.empty() ? "" : ", ", name, value);
  line("values", values);
  return fmt::format("{}---- prompt, {} tokens\n{}\n---- response, {} tokens\n{}\n", head,
                     s.prompt_length, safe_text(s.prompt), s.response_length,
                     safe_text(s.response));
}

std::string quote_path(const std::string& path) { return on_one_line(path); }

}  // namespace slimexx::cli
