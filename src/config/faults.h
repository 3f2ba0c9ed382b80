// The faults of a configuration, collected so that one run of the program shows all of them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::config {

struct Place {
  int32_t file = -1;  // index into Tree::files; -1: no place
  int32_t line = 0;   // from 1; 0: the whole file
  int32_t column = 0;
};

struct Fault {
  std::string where;  // "run.yaml:12:5"; empty: no place
  std::string key;    // "rollout.num_rollout"; empty: the whole file
  std::string reason;
  std::string hint;
  Place place = {};  // the same as `where`, to sort faults in file order
};

class FaultList {
 public:
  // Ignores a fault that is already listed.
  void add(Fault fault);
  void append(const FaultList& others);
  // Whether a fault concerns the key, a section around it or an item of it.
  bool concerns(std::string_view key) const;
  // If there are faults, throws one Error(kUsage) that lists them in file order; faults without a
  // place come last.
  void throw_if_any() const;

 private:
  std::vector<Fault> faults_;
};

// Throws one fault immediately, for a file that cannot be read any further.
[[noreturn]] void throw_fault(const Fault& fault);

// Quotes a value for a message: escapes control characters, and truncates to about 60 characters.
std::string quote_value(std::string_view text);

}  // namespace slimexx::config
