// Metrics of graded samples that rollouts and evaluations share.
#pragma once
#include <span>
#include <string>

#include "slimexx/observe/metrics.h"
#include "slimexx/sample/sample.h"

namespace slimexx::rl {

using sample::Sample;

// Sets <prefix>grader_failed, the number of samples without a grade.
void set_grader_failed(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row);

// <prefix><name>: the mean of each of the grader's values over the samples that have it. Names from
// a remote service are made valid metric names; at most 64 are kept.
void set_grader_values(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row);

// <prefix>zero_std/frac: share of the groups whose samples all got the same reward, length penalty
// included. <prefix>zero_std/count_R: number of those groups with reward R, rounded to one decimal
// place. Nothing if no sample has a grade.
void set_zero_std(std::span<const Sample> samples, const std::string& prefix,
                  observe::MetricRow& row);

// A reward to one decimal place, as the metrics of flat groups are named; never "-0.0".
std::string name_reward(double reward);

// <prefix>repetition_frac: share of the responses whose last 10,000 bytes compress more than
// tenfold. slime counts characters and uses zlib, so borderline cases may differ.
void set_repetition(std::span<const Sample> samples, const std::string& prefix,
                    observe::MetricRow& row);

// Sets <prefix>prefix_cache_hit_rate and <prefix>avg_cached_tokens_per_sample.
void set_cached_tokens(std::span<const Sample> samples, const std::string& prefix,
                       observe::MetricRow& row);

}  // namespace slimexx::rl
