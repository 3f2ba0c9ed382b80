#include "io/hf_index.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <set>

#include "io/folder_files.h"
#include "io/quote_name.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"

namespace slimexx::io {

std::vector<std::string> HfIndex::files() const {
  std::set<std::string> names;
  for (const auto& [tensor, file] : file_of) names.insert(file);
  return {names.begin(), names.end()};
}

HfIndex parse_hf_index(std::string_view text, const std::string& where) {
  const Json json = parse_json(text, where);
  const auto fail = [&](const std::string& what, const char* hint = "fetch the index again") {
    throw Error(ErrorCode::kInput, what, hint, where);
  };
  if (!json.is_object() || !json.contains("weight_map") || !json["weight_map"].is_object()) {
    fail("the index has no object \"weight_map\"");
  }
  HfIndex index;
  for (const auto& [name, file] : json["weight_map"].items()) {
    if (!file.is_string())
      fail(fmt::format("weight_map: the value of {} is not a file name", quote_name(name)));
    const auto& file_name = file.get_ref<const std::string&>();
    if (!is_plain_file_name(file_name)) {
      fail(fmt::format("weight_map {} names {}, which is not a file in this folder",
                       quote_name(name), quote_name(file_name)),
           "the index may only list files in its own folder: do not trust this folder");
    }
    if (!file_name.ends_with(".safetensors")) {
      fail(fmt::format("weight_map {} names {}, which is not a .safetensors file", quote_name(name),
                       quote_name(file_name)),
           "convert the model to safetensors first");
    }
    index.file_of.emplace(name, file_name);
  }
  if (index.file_of.empty()) fail("weight_map is empty");
  if (const auto it = json.find("metadata"); it != json.end() && it->is_object()) {
    const auto total = it->find("total_size");
    // Some old writers store total_size as a float.
    if (total != it->end() && total->is_number()) {
      const double value = total->get<double>();
      if (value >= 0 && value < 0x1p62) index.total_bytes = static_cast<int64_t>(value);
    }
  }
  return index;
}

std::string render_hf_index(const HfIndex& index) {
  Json json;
  json["metadata"] = Json::object();
  if (index.total_bytes) json["metadata"]["total_size"] = *index.total_bytes;
  json["weight_map"] = Json::object();
  auto& map = json["weight_map"].get_ref<Json::object_t&>();
  // push_back: the ordered map's own insert searches linearly, and these keys are unique and
  // sorted.
  map.reserve(index.file_of.size());
  for (const auto& [name, file] : index.file_of) map.push_back({name, file});
  return json.dump(2) + "\n";
}

}  // namespace slimexx::io
