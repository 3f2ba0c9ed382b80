// The answers that a label accepts, parsed before a grader reads them.
#pragma once
#include <string>
#include <vector>

namespace slimexx::reward {

// The answers in a JSON list of strings, otherwise the label alone. `fault`: why no grader can use
// the label: an empty list, a list of records, a record, a list in Python's notation.
struct Label {
  std::vector<std::string> answers;
  std::string fault;
};
Label read_answers(const std::string& label);

}  // namespace slimexx::reward
