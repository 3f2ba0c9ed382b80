// RUN/samples/rollout_N.jsonl.zst: the samples of one rollout for people to look at. A line is that
// of a rollout dump (sample.h) with "prompt_length" besides, so debug.load_rollout takes the file
// as it is.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "slimexx/sample/sample.h"

namespace slimexx::sample {

// Response tokens whose per-token arrays one file holds. Samples beyond have their texts, rewards
// and reasons only, so that a file of long responses costs seconds, not minutes.
inline constexpr int64_t kMaxSampleFileTokens = int64_t{4} << 20;

std::string sample_file_name(int64_t rollout);  // "rollout_000012.jsonl.zst"

// The file appears when it is whole; one that is there already is replaced. Throws
// Error(kEnvironment) where it cannot be written.
void write_sample_file(const std::string& path, std::span<const Sample> samples,
                       int64_t max_tokens = kMaxSampleFileTokens);

}  // namespace slimexx::sample
