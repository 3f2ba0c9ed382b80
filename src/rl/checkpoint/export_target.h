// The target folder of an export: checks what it holds, and replaces it with the new export.
#pragma once
#include <string>

#include "slimexx/base/folder.h"

namespace slimexx::rl {

// The folder's absolute path with links resolved, and without a slash at the end.
std::string resolve_folder(const std::string& directory);

// A folder that is being written. It may hold only files that `is_own` accepts, and is removed at
// destruction unless it was renamed. Throws Error(kEnvironment) if a folder of that name holds
// anything else.
class UnfinishedFolder {
 public:
  UnfinishedFolder(std::string path, NameTest is_own);
  UnfinishedFolder(const UnfinishedFolder&) = delete;
  UnfinishedFolder& operator=(const UnfinishedFolder&) = delete;
  ~UnfinishedFolder();
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  NameTest is_own_;
};

// Throws Error(kEnvironment).
void rename_path(const std::string& from, const std::string& to);

// Renames the complete folder `fresh` to `target`, in place of an earlier export. If anything else
// has appeared at `target`, both folders stay, and Error(kEnvironment) names them.
void put_export_in_place(const std::string& fresh, const std::string& target,
                         const NameTest& is_own);

}  // namespace slimexx::rl
