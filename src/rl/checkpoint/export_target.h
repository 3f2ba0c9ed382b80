// The folder that an export goes to: what may stand there, and how the new one takes its place.
#pragma once
#include <string>

#include "slimexx/base/folder.h"

namespace slimexx::rl {

// The folder's path as its parent lists it, without a link as its last part.
std::string resolve_folder(const std::string& directory);

// A folder that is still to be made whole, of files with such names: it goes again unless it was
// renamed. Throws Error(kEnvironment) if a folder of that name holds anything else.
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

// Gives the whole folder `fresh` the name `target`, in place of an earlier export. What else has
// come there meanwhile stays, and so does the new folder beside it: Error(kEnvironment) names both.
void put_export_in_place(const std::string& fresh, const std::string& target,
                         const NameTest& is_own);

}  // namespace slimexx::rl
