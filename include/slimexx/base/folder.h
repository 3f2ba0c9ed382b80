// What the program removes from disk. It removes files that it writes itself, which it knows by
// name, one by one, and a folder when that leaves it empty. Never a tree: whatever else lies in a
// folder stays, and the folder with it. Other code removes nothing but a file that it just made.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace slimexx {

// Whether the program writes a file of that name into the folder that is meant.
using NameTest = std::function<bool(std::string_view name)>;

// The first entry of a folder, by name, that is no regular file of such a name and no temporary of
// one (NAME.tmp.<pid>). Empty if there is none or no folder. Of a path that is a file or a link the
// last part of the path itself.
std::string find_foreign(const std::string& folder, const NameTest& is_own);

// Removes a folder in which nothing is foreign. If something is, now or by the time that the folder
// would go, it stays, and the result names it; empty: the folder is gone. Looks right before it
// removes. Error(kEnvironment) if the system refuses.
std::string remove_own_folder(const std::string& folder, const NameTest& is_own);

// Removes the regular files of such names, and their temporaries, that lie right in the folder.
void remove_own_files(const std::string& folder, const NameTest& is_own);

// Removes the temporaries of such names that killed writers left right in the folder: files called
// NAME.tmp.<pid> of which no process of this machine has the pid. For the owner of a folder that
// only processes of this machine write to.
void remove_stale_temporaries(const std::string& folder, const NameTest& is_own);

// STEM, STEM-2, STEM-3 ...: the first that is not there.
std::string free_path(const std::string& stem);

// A folder that is being written, empty or absent at first. Unless keep() was called, the files of
// such names go again, and so does a folder that was made if that leaves it empty.
class NewFolder {
 public:
  NewFolder(std::string path, NameTest is_own);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  void keep() { is_kept_ = true; }

 private:
  std::string path_;
  NameTest is_own_;
  bool was_there_, is_kept_ = false;
};

}  // namespace slimexx
