// The samples of a rollout in memory, between ranks and on disk. Generation fills them, graders and
// estimators add fields, and the trainer reads them.
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

// The version of the weights that generated a range of response tokens, from the end of the
// previous span to `end`. `version` is the number of optimizer steps that made these weights.
struct WeightSpan {
  int64_t end = 0;
  int64_t version = 0;
  bool operator==(const WeightSpan&) const = default;
};

struct Sample {
  int64_t group = 0;                 // group number, counted over the whole run
  int64_t sample = 0;                // index within the group, from 0
  int64_t rollout = 0;               // the rollout that drew the prompt
  std::vector<int32_t> tokens = {};  // prompt and response
  int64_t response_length = 0;
  // Each [response_length]; all except the mask may be empty.
  std::vector<uint8_t> loss_mask = {};
  std::vector<float> advantages = {}, old_log_probs = {}, ref_log_probs = {},
                     rollout_log_probs = {};
  std::optional<double> advantage = {};  // from a dump; replaces the estimator's
  double reward = 0;
  double length_penalty = 0;  // added to the reward for estimators; computed on each rank
  SampleStatus status = SampleStatus::kCompleted;
  std::vector<WeightSpan> weight_versions = {};  // ends ascend to response_length; empty: unknown
  std::optional<float> temperature = {};         // of sampling; 0: greedy; empty: unknown
  int64_t cached_tokens = 0;
  std::string prompt_text = {}, response_text = {}, label = {}, reason = {}, prediction = {};
  std::string metadata = {};  // a JSON object, or empty
  // The grader gave no score: `reward` is meaningless, the loss mask is 0, and the estimators
  // exclude the sample from its group.
  bool grader_failed = false;
  std::map<std::string, double> values = {};  // more numbers from the grader, such as dapo's acc

  int64_t prompt_length() const { return static_cast<int64_t>(tokens.size()) - response_length; }
  int64_t num_trained_tokens() const;
  int64_t last_weight_version() const {  // version of the last token; 0 if unknown
    return weight_versions.empty() ? 0 : weight_versions.back().version;
  }
};

using SampleGroup = std::vector<size_t>;  // indices of the samples of one group

// Groups in first-seen order. Excludes samples whose grader failed, so that they do not affect any
// group's mean or standard deviation.
std::vector<SampleGroup> group_samples(std::span<const Sample> samples);

// One object of the rollout dump; without `with_tokens` it has no per-token arrays.
// sample_from_json throws Error(kInput) at `where` with the key for missing, malformed or
// contradictory fields. It does not read "advantages", which the estimator recomputes.
Json sample_to_json(const Sample& sample, bool with_tokens = true);
Sample sample_from_json(const Json& object, const std::string& where);

// Reads "weight_versions" of a dump's object, or "weight_version" in older dumps.
std::vector<WeightSpan> read_weight_versions(const Json& object, int64_t response_length,
                                             const std::string& where);

void save_rollout(const std::string& path, const std::vector<Sample>& samples);
std::vector<Sample> load_rollout(const std::string& path);

// Bytes for the exchange between ranks of one binary: all fields except advantages and length
// penalties, which each rank computes.
std::string pack_samples(const std::vector<Sample>& samples);
std::vector<Sample> unpack_samples(const std::string& bytes);

}  // namespace slimexx::sample
