#include "io/folder_files.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <filesystem>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"

namespace slimexx::io {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kCopyBytes = uint64_t{1} << 20;
constexpr std::array<std::string_view, 15> kWeightEndings{
    ".safetensors", ".bin", ".pt",   ".pth", ".ckpt", ".gguf",   ".ggml",      ".h5",
    ".msgpack",     ".ot",  ".onnx", ".npz", ".pkl",  ".tflite", ".index.json"};

}  // namespace

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

bool is_side_file_name(std::string_view name) {
  if (!is_plain_file_name(name) || name.starts_with('.') || name == kManifestName) return false;
  if (!is_valid_utf8(name)) return false;  // the manifest is JSON
  const std::string lower = to_lower_ascii(name);
  if (lower.find(".tmp.") != std::string::npos || lower.ends_with(".incomplete")) return false;
  return std::ranges::none_of(kWeightEndings, [&](auto e) { return lower.ends_with(e); });
}

std::vector<std::string> list_files(const std::string& directory) {
  std::error_code error;
  fs::directory_iterator it(directory, error);
  if (error) {
    throw Error(ErrorCode::kEnvironment, fmt::format("cannot list the folder: {}", error.message()),
                "check the path", directory);
  }
  std::vector<std::string> names;
  for (; it != fs::directory_iterator(); it.increment(error)) {
    if (error) break;
    std::error_code ignored;
    if (it->is_regular_file(ignored)) {
      names.push_back(it->path().filename().string());
    } else if (it->is_symlink(ignored) && !it->exists(ignored)) {
      log_warn("{}: the link is broken; skipped", it->path().string());
    }
  }
  if (error) {
    throw Error(ErrorCode::kEnvironment, fmt::format("cannot list the folder: {}", error.message()),
                "check the disk and its mount", directory);
  }
  std::ranges::sort(names);
  return names;
}

void copy_file_contents(const std::string& from, const std::string& to) {
  const InputFile in(from);
  OutputFile out(to);
  std::string buffer(std::min(kCopyBytes, in.size_bytes()), '\0');
  for (uint64_t at = 0; at < in.size_bytes();) {
    const uint64_t n = std::min(kCopyBytes, in.size_bytes() - at);
    in.read_at(at, buffer.data(), n);
    out.write(buffer.data(), n);
    at += n;
  }
  out.commit();
}

bool is_same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

uint64_t file_bytes(const std::string& path) { return InputFile(path).size_bytes(); }

}  // namespace slimexx::io
