// File input and output that survives bad paths, short reads and power cuts. Every failure is an
// Error that names the path and the system's reason.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx {

// A regular file open for reading at offsets (pread: a file that shrinks is an error, not SIGBUS).
// Directories, FIFOs and devices are refused. Move-only; any thread may read.
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

// The whole file, refused above max_bytes.
std::string read_text_file(const std::string& path, uint64_t max_bytes = uint64_t{1} << 30);

// An output file that appears under its name only when commit() succeeds: written as
// path.tmp.<pid>, fsynced, renamed, directory fsynced. Without commit() the temporary is removed.
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

// Joins with one slash; an absolute `name` stands for itself.
std::string join_path(const std::string& directory, const std::string& name);

}  // namespace slimexx
