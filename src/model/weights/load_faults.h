// Faults of weights on disk, collected so that one error names them all.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace slimexx::model {

struct Faults {
  std::vector<std::string> lines;
  void throw_if_any(const std::string& where) const;  // Error(kInput)
};

// Values that are not finite, in one tensor.
struct BadValues {
  int64_t count = 0, first = -1;  // element of the tensor on disk
  // Those among the elements from `on_disk` on.
  void add(std::span<const float> values, int64_t on_disk);
  void add(const BadValues& other);
};
// `file`: the one that holds the tensor, if one does.
void add_fault(Faults& faults, const std::string& tensor, const BadValues& bad,
               const std::string& file = "");

// A tensor's name as a file has it: in quotes where it is empty or not fit for one line.
std::string name_text(const std::string& name);

std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace slimexx::model
