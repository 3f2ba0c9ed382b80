// Samples: what one rollout is made of, in memory, between ranks and on disk. Generation fills
// them, graders and estimators add to them, and the trainer takes them as they are.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::sample {

enum class SampleStatus : uint8_t { kCompleted, kTruncated, kAborted };
std::string_view status_name(SampleStatus status);

// The weights that generated a range of response tokens: those from the end of the span before it
// up to `end`. `version` is the number of optimizer steps that the weights had taken.
struct WeightSpan {
  int64_t end = 0;
  int64_t version = 0;
  bool operator==(const WeightSpan&) const = default;
};

struct Sample {
  int64_t group = 0;                 // number of its group, counted over the whole run
  int64_t sample = 0;                // of the group, from 0
  int64_t rollout = 0;               // the turn of the loop that draws it
  std::vector<int32_t> tokens = {};  // prompt and response
  int64_t response_length = 0;
  // Each [response_length]; all but the mask may be empty.
  std::vector<uint8_t> loss_mask = {};
  std::vector<float> advantages = {}, old_log_probs = {}, ref_log_probs = {},
                     rollout_log_probs = {};
  std::optional<double> advantage = {};  // given by a dump, in place of the estimator's
  double reward = 0;
  double length_penalty = 0;  // added to it for the estimators; each rank computes it
  SampleStatus status = SampleStatus::kCompleted;
  std::vector<WeightSpan> weight_versions = {};  // ends ascend to response_length; empty: unknown
  std::optional<float> temperature = {};  // that it was sampled at, 0: greedily; empty: unknown
  int64_t cached_tokens = 0;
  std::string prompt_text = {}, response_text = {}, label = {}, reason = {}, prediction = {};
  std::string metadata = {};  // a JSON object, or empty
  // The grader had no score: `reward` means nothing, the loss mask is 0, and the estimators leave
  // the sample out of its group.
  bool grader_failed = false;
  std::map<std::string, double> values = {};  // further numbers of the grader, such as dapo's acc

  int64_t prompt_length() const { return static_cast<int64_t>(tokens.size()) - response_length; }
  int64_t num_trained_tokens() const;
  int64_t last_weight_version() const {  // of the last token; 0 where that is not known
    return weight_versions.empty() ? 0 : weight_versions.back().version;
  }
};

using SampleGroup = std::vector<size_t>;  // indices of the samples of one group

// Groups in first-seen order. Samples whose grader failed are in none, so no group's mean or
// deviation knows them.
std::vector<SampleGroup> group_samples(std::span<const Sample> samples);

// One object of the rollout dump; not `with_tokens`: without what it has of each token. from_json
// throws Error(kInput) naming `where` and the key for
// missing, misshapen or contradictory fields. It does not read "advantages", which the estimator
// makes anew.
Json sample_to_json(const Sample& sample, bool with_tokens = true);
Sample sample_from_json(const Json& object, const std::string& where);

// "weight_versions" of an object of the dump, or "weight_version" of an older one.
std::vector<WeightSpan> read_weight_versions(const Json& object, int64_t response_length,
                                             const std::string& where);

void save_rollout(const std::string& path, const std::vector<Sample>& samples);
std::vector<Sample> load_rollout(const std::string& path);

// For the exchange between ranks of one binary: all but what each rank computes: advantages and
// length penalties.
std::string pack_samples(const std::vector<Sample>& samples);
std::vector<Sample> unpack_samples(const std::string& bytes);

}  // namespace slimexx::sample
