// Exclusive use of a folder among processes, for as long as the lock lives or its process does.
#pragma once
#include <optional>
#include <string>

namespace slimexx::rl {

class FolderLock {
 public:
  // Makes `directory` if need be. Empty if another process holds it. Not every network file system
  // locks folders: there, it is given to all. Throws Error(kEnvironment) if the folder cannot be
  // made.
  static std::optional<FolderLock> take(const std::string& directory);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  // Folders that it made go again if nothing was put into them. Without the lock nothing does.
  ~FolderLock();

 private:
  FolderLock(std::string directory, std::string first_made, int fd);
  std::string directory_, first_made_;  // the topmost folder that it made; empty: none
  int fd_;
};

}  // namespace slimexx::rl
