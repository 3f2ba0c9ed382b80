// A file that several processes write concurrently.
#pragma once
#include <cstdint>
#include <string>

namespace slimexx {

// A file of known size; each process writes its own bytes. One process creates it, and renames it
// to its final name when all have flushed. The file system must be coherent between the processes,
// as a local disk, Lustre and GPFS are. NFS clients on two hosts that write to the same page may
// lose data.
class FilledFile {
 public:
  static void create(const std::string& path, uint64_t size_bytes);  // zeros; replaces a file
  explicit FilledFile(std::string path);                             // opens a created file
  FilledFile(FilledFile&& other) noexcept;
  FilledFile& operator=(FilledFile&&) = delete;
  ~FilledFile();
  void write_at(uint64_t offset, const void* data, uint64_t n);
  void flush();  // returns when this process's writes are on disk

  // Renames `from` to `to`, in the same folder, and syncs the folder. One process calls it, at the
  // end.
  static void rename(const std::string& from, const std::string& to);

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace slimexx
