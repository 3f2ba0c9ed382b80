// The faults of a configuration, collected so that one run of the program shows all of them.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::config {

struct Place {
  int32_t file = -1;  // index into Tree::files; -1: nowhere
  int32_t line = 0;   // from 1; 0: the file as a whole
  int32_t column = 0;
};

struct Fault {
  std::string where;  // "run.yaml:12:5"; empty: nowhere in particular
  std::string key;    // "rollout.num_rollout"; empty: the file as a whole
  std::string reason;
  std::string hint;
  Place place = {};  // what `where` says, to list faults in the order of the file
};

class FaultList {
 public:
  // A fault that is already listed is not listed twice.
  void add(Fault fault);
  void append(const FaultList& others);
  // Whether a fault concerns the key, a section around it or an item of it.
  bool concerns(std::string_view key) const;
  // Throws one Error(kUsage) that lists every fault in the order of the file, those without a place
  // last; nothing if there is none.
  void throw_if_any() const;

 private:
  std::vector<Fault> faults_;
};

// Throws one fault at once, for a file that cannot be read any further.
[[noreturn]] void throw_fault(const Fault& fault);

// A value in quotes for a message: control characters escaped, cut to some 60 characters.
std::string quote_value(std::string_view text);

}  // namespace slimexx::config
