#include "slimexx/rl/sample_file.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "slimexx/io/lines.h"

namespace slimexx::rl {

std::string sample_file_name(int64_t rollout) {
  return fmt::format("rollout_{:06}.jsonl.zst", rollout);
}

void write_sample_file(const std::string& path, int64_t rollout, std::span<const Sample> samples,
                       const std::vector<std::vector<float>>& advantages, int64_t max_tokens) {
  io::LineWriter writer(path);
  int64_t tokens = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    tokens += s.response_length;
    const bool with_tokens = tokens <= max_tokens;
    Json line;
    line["rollout"] = rollout;
    line.update(sample_to_json(s, with_tokens));
    line["prompt_length"] = s.prompt_length();
    if (with_tokens && !advantages[i].empty()) line["advantages"] = floats_to_json(advantages[i]);
    writer.write(line.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  writer.finish();
}

}  // namespace slimexx::rl
