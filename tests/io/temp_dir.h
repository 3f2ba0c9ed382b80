// A folder that is removed at the end of a test.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#include "slimexx/base/error.h"

namespace slimexx::io {

class TempDir {
 public:
  TempDir() : TempDir(std::filesystem::temp_directory_path()) {}
  explicit TempDir(const std::filesystem::path& parent) {
    std::string name = (parent / "slx_io_XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp failed: " + name);
    path_ = name;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  std::string put(const std::string& name, std::string_view content) const {
    write_bytes(file(name), content);
    return file(name);
  }
  static void write_bytes(const std::string& path, std::string_view content) {
    std::ofstream(path, std::ios::binary).write(content.data(), std::streamsize(content.size()));
  }
  static std::string read_bytes(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }

 private:
  std::string path_;
};

// Runs `body`, which must throw Error(code) with `text` in its message; returns the whole message.
template <class Body>
std::string expect_error(ErrorCode code, std::string_view text, Body&& body) {
  try {
    body();
  } catch (const Error& e) {
    EXPECT_EQ(int(e.code()), int(code)) << e.what();
    EXPECT_NE(std::string_view(e.what()).find(text), std::string_view::npos)
        << "wanted \"" << text << "\" in: " << e.what();
    return e.what();
  }
  ADD_FAILURE() << "no Error; wanted one with \"" << text << '"';
  return {};
}

}  // namespace slimexx::io
