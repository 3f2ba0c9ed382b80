// RUN/samples/rollout_N.jsonl.zst: the samples of one rollout, for inspection. Lines are those of a
// rollout dump (sample.h) plus "prompt_length", so debug.load_rollout accepts the file.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "slimexx/sample/sample.h"

namespace slimexx::sample {

// Limit on response tokens with per-token arrays in one file. Further samples only have their
// texts, rewards and reasons, so that writing long responses takes seconds, not minutes.
inline constexpr int64_t kMaxSampleFileTokens = int64_t{4} << 20;

std::string sample_file_name(int64_t rollout);  // "rollout_000012.jsonl.zst"

// The file appears when it is complete and replaces an existing one. Throws Error(kEnvironment) if
// it cannot be written.
void write_sample_file(const std::string& path, std::span<const Sample> samples,
                       int64_t max_tokens = kMaxSampleFileTokens);

}  // namespace slimexx::sample
