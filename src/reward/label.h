// What a label accepts, before a grader reads it.
#pragma once
#include <string>
#include <vector>

namespace slimexx::reward {

// The answers of a JSON list of strings, else the label alone. `fault`: no grader can take the
// label for an answer: an empty list, a list of records, a record, a list in Python's notation.
struct Label {
  std::vector<std::string> answers;
  std::string fault;
};
Label read_answers(const std::string& label);

}  // namespace slimexx::reward
