// A file that several processes write at once.
#pragma once
#include <cstdint>
#include <string>

namespace slimexx {

// A file of known size that several processes fill, each its own bytes. One of them makes it; it
// gets its final name by rename when all have flushed. The file system must show every
// process what the others wrote: a local one, Lustre, GPFS. NFS clients of two hosts that write
// into one page may lose bytes.
class FilledFile {
 public:
  static void create(const std::string& path, uint64_t size_bytes);  // zeros; replaces a file
  explicit FilledFile(std::string path);                             // one that was created
  FilledFile(FilledFile&& other) noexcept;
  FilledFile& operator=(FilledFile&&) = delete;
  ~FilledFile();
  void write_at(uint64_t offset, const void* data, uint64_t n);
  void flush();  // returns when this process's bytes are on disk

  // Gives it its final name in the same folder, which is synced. By one process, at the end.
  static void rename(const std::string& from, const std::string& to);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace slimexx
