// Reads the keys of config.json for sparse attention.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/config/config_reader.h"

namespace slimexx::model {

// Reads which layers have an indexer, from a list of kinds or a string with a letter per layer.
// Refuses a list of letters: transformers would give every layer an indexer.
std::vector<bool> ConfigReader::list_full_layers(const std::string& key, int64_t num_layers) const {
  const Json& value = config_.at(key);
  if (!value.is_array() && !value.is_string())
    fail(fmt::format("\"{}\" must be a list of {} layer kinds", key, num_layers));
  std::vector<std::string> kinds;
  if (value.is_string()) {
    for (const char letter : value.get<std::string>())
      kinds.push_back(letter == 'F' ? "full" : letter == 'S' ? "shared" : "");
  } else {
    for (const Json& kind : value) kinds.push_back(kind.is_string() ? kind.get<std::string>() : "");
  }
  if (std::ssize(kinds) != num_layers)
    fail(fmt::format("\"{}\" lists {} kinds for {} layers", key, kinds.size(), num_layers));
  std::vector<bool> is_full;
  for (const std::string& kind : kinds) {
    if (kind != "full" && kind != "shared")
      fail(fmt::format("\"{}\" lists an unsupported kind for layer {}", key, is_full.size()),
           "supported: \"full\" and \"shared\", or a string of F and S");
    is_full.push_back(kind == "full");
  }
  return is_full;
}

// Uses the first of the three keys that is present, as transformers 5 does.
std::vector<bool> ConfigReader::read_full_layers(int64_t num_layers) const {
  for (const char* key : {"indexer_types", "index_topk_pattern"})
    if (has(key)) return list_full_layers(key, num_layers);
  const int64_t frequency = optional_size("index_topk_freq").value_or(1);
  const int64_t offset = count("index_skip_topk_offset", 2, 1 << 16);
  std::vector<bool> is_full;
  for (int64_t i = 0; i < num_layers; ++i)
    is_full.push_back(std::max<int64_t>(i - offset + 1, 0) % frequency == 0);
  return is_full;
}

void ConfigReader::read_indexers(ModelSpec& spec) const {
  const std::vector<bool> is_full = read_full_layers(spec.num_layers());
  if (!is_full[0])
    fail("layer 0 shares the keys of an earlier layer, but there is no earlier layer",
         "indexer_types must begin with \"full\"");
  const auto size_or = [&](const char* key, int64_t fallback, int64_t max) {
    return has(key) ? size(key, max) : fallback;
  };
  IndexerSpec indexer{.hidden_size = spec.hidden_size,
                      .num_heads = size_or("index_n_heads", 32, 1 << 10),
                      .head_dim = size_or("index_head_dim", 128, 1024)};
  const int64_t top_k = size_or("index_topk", 2048, int64_t{1} << 24);
  const auto use = [&](LayerSpec& layer, bool full) {
    auto& attention = std::get<MlaSpec>(layer.attention);
    indexer.q_rank = attention.q_rank;
    attention.top_k = top_k;
    attention.indexer = full ? std::optional(indexer) : std::nullopt;
  };
  const auto& first = std::get<MlaSpec>(spec.layers[0].attention);
  if (first.q_rank == 0)
    fail("\"q_lora_rank\" is missing: the indexer computes its queries from the low-rank queries");
  if (indexer.head_dim < first.rope_dim)
    fail(fmt::format(
        "index_head_dim ({}) is below qk_rope_head_dim ({}), the rotated part of a head",
        indexer.head_dim, first.rope_dim));
  for (size_t i = 0; i < is_full.size(); ++i) use(spec.layers[i], is_full[i]);
  for (MtpSpec& mtp : spec.mtp) use(mtp.layer, true);
}

}  // namespace slimexx::model
