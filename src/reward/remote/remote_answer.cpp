#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "reward/answers/text_scan.h"
#include "reward/remote/remote.h"
#include "slimexx/base/error.h"

namespace slimexx::reward {
namespace {

std::optional<double> read_number(const Json& value) {
  if (value.is_boolean()) return value.get<bool>() ? 1.0 : 0.0;
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  if (!std::isfinite(number)) return std::nullopt;
  return number;
}

Json parse_body(std::string_view body) {
  if (body.empty()) throw Error(ErrorCode::kRun, "its answer is empty");
  try {
    return parse_json(body, "the answer");
  } catch (const Error& error) {
    throw Error(ErrorCode::kRun, fmt::format("{} in '{}'", error.message(), shorten(body, 120)));
  }
}

double pick_reward(const Json& object, const std::string& reward_key) {
  const std::vector<std::string> keys = reward_key.empty()
                                            ? std::vector<std::string>{"reward", "score"}
                                            : std::vector<std::string>{reward_key};
  for (const std::string& key : keys) {
    const auto it = object.find(key);
    if (it == object.end()) continue;
    if (const auto number = read_number(*it)) return *number;
    throw Error(ErrorCode::kRun, fmt::format("'{}' in its answer is {}, not a finite number", key,
                                             shorten(it->dump())));
  }
  throw Error(ErrorCode::kRun,
              fmt::format("its answer has no '{}': {}", keys[0], shorten(object.dump(), 120)),
              "set reward_key to the key that holds the reward");
}

}  // namespace

Grade read_remote_grade(std::string_view body, const std::string& reward_key) {
  const Json answer = parse_body(body);
  Grade grade;
  grade.reason = "from the service";
  if (!answer.is_object()) {
    const auto number = read_number(answer);
    if (!number) {
      throw Error(ErrorCode::kRun, fmt::format("its answer is '{}', neither a finite number nor an "
                                               "object",
                                               shorten(body, 120)));
    }
    if (!reward_key.empty()) {
      throw Error(ErrorCode::kRun,
                  fmt::format("its answer is a plain number, without a '{}'", shorten(reward_key)),
                  "leave reward_key empty");
    }
    grade.reward = *number;
    return grade;
  }
  grade.reward = pick_reward(answer, reward_key);
  for (const auto& [key, value] : answer.items()) {
    if (const auto number = read_number(value)) grade.values[key] = *number;
    if (key == "reason" && value.is_string()) grade.reason = value.get<std::string>();
    if (key == "prediction" && value.is_string()) grade.prediction = value.get<std::string>();
  }
  return grade;
}

}  // namespace slimexx::reward
