// Removes files from disk. The program removes one by one the files that it wrote itself,
// identified by name, and a folder only if that is then empty. It never removes a tree: other files
// in a folder stay, and so does the folder. Other code may only remove a file that it has just
// made.
#pragma once
#include <functional>
#include <string>
#include <string_view>

namespace slimexx {

// Whether the program writes a file with this name into the given folder.
using NameTest = std::function<bool(std::string_view name)>;

// The first foreign entry of a folder, by name. All entries are foreign except regular files whose
// NAME passes is_own, and their temporaries (NAME.tmp.<pid>). Empty if there is no foreign entry or
// no folder. If the path itself is a file or a link, returns its last component.
std::string find_foreign(const std::string& folder, const NameTest& is_own);

// Removes a folder that has no foreign entries; checks this just before the removal. If there is a
// foreign entry, even one that appears during the removal, the folder stays, and the entry's name
// is returned. Returns an empty string if the folder is gone. Error(kEnvironment) if the system
// refuses.
std::string remove_own_folder(const std::string& folder, const NameTest& is_own);

// Removes the regular files directly in the folder whose names pass is_own, and their temporaries.
void remove_own_files(const std::string& folder, const NameTest& is_own);

// Removes temporaries that killed writers left directly in the folder: files named NAME.tmp.<pid>
// whose pid no process of this host has. For folders that only processes of this host write to.
void remove_stale_temporaries(const std::string& folder, const NameTest& is_own);

// The first of STEM, STEM-2, STEM-3 ... that does not exist.
std::string free_path(const std::string& stem);

// A folder that is being written, empty or absent at first. Unless keep() was called, the
// destructor removes the files whose names pass is_own, and then the folder, if it is empty and
// this object made it.
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
