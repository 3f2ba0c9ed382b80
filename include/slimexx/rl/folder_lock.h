// Exclusive use of a folder among processes, until the lock is destroyed or its process ends.
#pragma once
#include <optional>
#include <string>

namespace slimexx::rl {

class FolderLock {
 public:
  // Makes `directory` if it does not exist. Returns nullopt if another process holds the lock. On a
  // network file system that cannot lock folders, every process gets the lock. Throws
  // Error(kEnvironment) if the folder cannot be made.
  static std::optional<FolderLock> take(const std::string& directory);
  FolderLock(FolderLock&& other) noexcept;
  FolderLock& operator=(FolderLock&&) = delete;
  // Removes the folders that take() made if they are still empty. A moved-from lock does nothing.
  ~FolderLock();

 private:
  FolderLock(std::string directory, std::string first_made, int fd);
  std::string directory_, first_made_;  // the topmost folder that take() made; empty: none
  int fd_;
};

}  // namespace slimexx::rl
