// Tells which files of a model folder are weights and which are side files to copy with them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::io {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kHfIndexName = "model.safetensors.index.json";
inline constexpr const char* kHfSingleName = "model.safetensors";

// True for a single path component: not empty, no separator, not "." or "..".
bool is_plain_file_name(std::string_view name);

// True for config.json, tokenizer, templates, licence ...: all files except weights in any format,
// their indices, a checkpoint's manifest, temporaries and hidden files.
bool is_side_file_name(std::string_view name);

// Names of the regular files directly in `directory`, sorted. Follows links, because snapshots in
// the Hugging Face cache consist of links to blobs.
std::vector<std::string> list_files(const std::string& directory);

void copy_file_contents(const std::string& from, const std::string& to);
bool is_same_directory(const std::string& a, const std::string& b);
uint64_t file_bytes(const std::string& path);

}  // namespace slimexx::io
