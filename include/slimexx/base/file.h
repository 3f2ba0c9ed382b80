// File input and output that is safe against bad paths, short reads and power loss. Every failure
// throws an Error with the path and the system's reason.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx {

// A regular file opened for reads at offsets (pread: if the file shrinks, that is an error, not
// SIGBUS). Rejects directories, FIFOs and devices. Move-only; any thread may read.
class InputFile {
 public:
  explicit InputFile(std::string path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();
  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // Reads exactly n bytes at offset; throws if the file holds fewer.
  void read_at(uint64_t offset, void* destination, uint64_t n) const;

 private:
  std::string path_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

// Reads the whole file; throws if it is larger than max_bytes.
std::string read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// An output file that gets its name only when commit() succeeds: it is written as path.tmp.<pid>,
// fsynced and renamed, and the directory is fsynced. Without commit() the temporary is removed.
class OutputFile {
 public:
  explicit OutputFile(std::string path);
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();
  void write(const void* data, uint64_t n);
  void write(std::string_view text) { write(text.data(), text.size()); }
  uint64_t size_bytes() const { return size_bytes_; }
  void commit();

 private:
  std::string path_, temporary_;
  int fd_ = -1;
  uint64_t size_bytes_ = 0;
};

void write_file_atomic(const std::string& path, std::string_view content);
void make_directories(const std::string& path);
void sync_directory(const std::string& path);
bool path_exists(const std::string& path);

// Joins with one slash; an absolute `name` is returned as is.
std::string join_path(const std::string& directory, const std::string& name);

}  // namespace slimexx
