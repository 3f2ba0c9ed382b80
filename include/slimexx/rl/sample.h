// Samples: what one rollout is made of, in memory, between ranks and on disk.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::rl {

enum class SampleStatus : uint8_t { kCompleted, kTruncated, kAborted };
std::string_view status_name(SampleStatus status);

struct Sample {
  int64_t group = 0;            // of the rollout, from 0
  int64_t sample = 0;           // of the group, from 0
  std::vector<int32_t> tokens;  // prompt and response
  int64_t response_length = 0;
  std::vector<uint8_t> loss_mask;        // [response_length]
  std::vector<float> rollout_log_probs;  // [response_length] or empty, as are the next two
  std::vector<float> old_log_probs, ref_log_probs;
  std::optional<double> advantage;  // given by a dump, in place of the estimator's
  double reward = 0;
  SampleStatus status = SampleStatus::kCompleted;
  int64_t weight_version = 0;  // optimizer steps taken when it was generated
  int64_t cached_tokens = 0;
  std::string prompt_text, response_text, label, reason, prediction;
  std::string metadata;  // a JSON object, or empty
  // The grader had no score: `reward` means nothing, the loss mask is 0, and the estimators leave
  // the sample out of its group.
  bool grader_failed = false;
  std::map<std::string, double> values;  // further numbers of the grader, such as dapo's acc

  int64_t prompt_length() const { return static_cast<int64_t>(tokens.size()) - response_length; }
  int64_t num_trained_tokens() const;
};

// One object of the rollout dump; not `with_tokens`: without what it has of each token. from_json
// throws Error(kInput) naming `where` and the key for
// missing, misshapen or contradictory fields.
Json sample_to_json(const Sample& sample, bool with_tokens = true);
// The shortest decimals that read back as the same floats; NaN and Inf as null.
Json floats_to_json(const std::vector<float>& values);
Sample sample_from_json(const Json& object, const std::string& where);

void save_rollout(const std::string& path, const std::vector<Sample>& samples);
std::vector<Sample> load_rollout(const std::string& path);

// For the exchange between ranks of one binary.
std::string pack_samples(const std::vector<Sample>& samples);
std::vector<Sample> unpack_samples(const std::string& bytes);

}  // namespace slimexx::rl
