// One line of a sample file as `slimexx samples` shows it.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/base/json.h"
#include "slimexx/sample/sample.h"

namespace slimexx::cli {

struct ShownSample {
  std::optional<int64_t> rollout;  // absent in older evaluations
  bool of_evaluation = false;      // if so, `rollout` counts the rollouts before it
  int64_t group = 0, sample = 0, prompt_length = 0, response_length = 0;
  std::vector<sample::WeightSpan> weight_versions;
  double reward = 0;
  bool grader_failed = false;
  std::optional<double> advantage;  // mean over the response's trained tokens
  std::string status, prompt, response, label, reason, prediction;
  std::vector<std::pair<std::string, double>> values;
};

// Throws Error(kInput) at `where` with the key if `object` is not a line of a sample file.
ShownSample read_shown_sample(const Json& object, bool of_evaluation, const std::string& where);

// A header of a few lines, then the complete prompt and response. Control characters from the file
// become symbols, except line breaks and tabs.
std::string format_sample(const ShownSample& sample);
std::string quote_path(const std::string& path);

}  // namespace slimexx::cli
