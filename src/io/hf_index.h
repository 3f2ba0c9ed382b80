// model.safetensors.index.json: which shard file holds which tensor.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::io {

struct HfIndex {
  std::map<std::string, std::string> file_of;  // tensor -> file name
  std::optional<int64_t> total_bytes;          // metadata.total_size
  std::vector<std::string> files() const;      // sorted, each once
};

// Throws Error(kInput) at `where`. Accepts only plain file names, so no path leaves the folder.
HfIndex parse_hf_index(std::string_view text, const std::string& where);

// The index as transformers writes it.
std::string render_hf_index(const HfIndex& index);

}  // namespace slimexx::io
