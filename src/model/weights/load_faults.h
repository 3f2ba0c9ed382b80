// Collects faults of weights on disk, so that one error names them all.
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

// The non-finite values of one tensor.
struct BadValues {
  int64_t count = 0, first = -1;  // first: element index in the tensor on disk
  // Counts the non-finite elements of `values`, which start at element on_disk.
  void add(std::span<const float> values, int64_t on_disk);
  void add(const BadValues& other);
};
// `file`: the file that holds the tensor, or empty.
void add_fault(Faults& faults, const std::string& tensor, const BadValues& bad,
               const std::string& file = "");

// A tensor's name for messages: in quotes if it is empty or does not fit on one line.
std::string name_text(const std::string& name);

std::string shape_text(const std::vector<int64_t>& shape);

}  // namespace slimexx::model
