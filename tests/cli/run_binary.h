// Runs the program as a user does, and reads back what it said.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "slimexx/base/json.h"

namespace slimexx::cli {

struct Finished {
  int status = -1;  // exit status; 128 + number of the signal that ended it
  std::string out, err;
};

// `arguments` follow the program's name. Ended after a minute.
Finished run_slimexx(const std::vector<std::string>& arguments);
// On several ranks under mpirun; `has_mpirun` says whether it is there.
Finished run_slimexx_ranks(int num_ranks, const std::vector<std::string>& arguments);
bool has_mpirun();

// A fresh folder that is removed at the end.
class Folder {
 public:
  Folder();
  ~Folder();
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and gives its path.
  std::string put(const std::string& name, std::string_view content) const;

 private:
  std::string path_;
};

std::string read_bytes(const std::string& path);
std::string golden_model(const std::string& name);
const std::vector<std::string>& golden_models();
// The objects of a JSON-lines text.
std::vector<Json> parse_lines(const std::string& text);

}  // namespace slimexx::cli
