// The faults of a configuration, collected so that one run of the program shows all of them.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::config {

struct Fault {
  std::string where;  // "run.yaml:12:5"; empty: nowhere in particular
  std::string key;    // "rollout.num_rollout"; empty: the file as a whole
  std::string reason;
  std::string hint;
};

class FaultList {
 public:
  // A fault that is already listed is not listed twice.
  void add(Fault fault);
  bool empty() const { return faults_.empty(); }
  // Throws one Error(kUsage) that lists every fault; nothing if there is none.
  void throw_if_any() const;

 private:
  std::vector<Fault> faults_;
};

// Throws one fault at once, for a file that cannot be read any further.
[[noreturn]] void throw_fault(const Fault& fault);

// A value in quotes for a message: control characters escaped, cut to some 60 characters.
std::string quote_value(std::string_view text);

}  // namespace slimexx::config
