#include "slimexx/sample/sample_file.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "slimexx/io/lines.h"

namespace slimexx::sample {

std::string sample_file_name(int64_t rollout) {
  return fmt::format("rollout_{:06}.jsonl.zst", rollout);
}

void write_sample_file(const std::string& path, std::span<const Sample> samples,
                       int64_t max_tokens) {
  io::LineWriter writer(path);
  int64_t tokens = 0;
  for (const Sample& s : samples) {
    tokens += s.response_length;
    Json line = sample_to_json(s, tokens <= max_tokens);
    line["prompt_length"] = s.prompt_length();
    writer.write(line.dump(-1, ' ', false, Json::error_handler_t::replace));
  }
  writer.finish();
}

}  // namespace slimexx::sample
