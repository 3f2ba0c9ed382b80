// Cleaning up folders: the remains of killed or failed writers.
#pragma once
#include <string>

namespace slimexx {

// Removes the temporaries that killed writers left in `directory` (not below it): files called
// NAME.tmp.<pid> of which no process of this machine has the pid. For the owner of a folder that
// only processes of this machine write to.
void remove_stale_temporaries(const std::string& directory);

// Removes a file, or a folder with all that is in it; nothing where there is none.
// Error(kEnvironment) names it.
void remove_path(const std::string& path);

// A folder that is being written: removed with its content unless keep() was called. At first the
// folder does not exist or is empty; one that existed is left empty by the removal.
class NewFolder {
 public:
  explicit NewFolder(std::string path);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  void keep() { is_kept_ = true; }

 private:
  std::string path_;
  bool was_there_, is_kept_ = false;
};

}  // namespace slimexx
