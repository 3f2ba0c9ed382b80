// The error for faults of the user, their files or their machine. Thrown anywhere, caught once in
// main, which prints it and turns `code` into the exit status. Faults of our own are
// SLX_CHECK (check.h); expected absence is std::optional.
#pragma once
#include <exception>
#include <string>

namespace slimexx {

enum class ErrorCode {
  kUsage,        // the command line or the configuration: exit 2
  kInput,        // a file the user gave is malformed: exit 2
  kEnvironment,  // machine, library, permission, disk: exit 3
  kRun,          // the run failed under way: exit 4
  kCheck,        // a check found a difference: exit 5
  kInterrupted,  // stopped by a signal after a checkpoint: exit 130
};

class Error : public std::exception {
 public:
  // what: the fault with its values; hint: what to type or change next; where: the user's file,
  // line, byte offset or key. hint and where may be empty. All are kept printable (printable.h).
  Error(ErrorCode code, std::string what, std::string hint = "", std::string where = "");
  const char* what() const noexcept override { return text_.c_str(); }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return what_; }
  const std::string& hint() const { return hint_; }
  const std::string& where() const { return where_; }
  // "where: message", for a line of a report.
  std::string located_message() const { return where_.empty() ? what_ : where_ + ": " + what_; }
  // A copy that names a place if this one names none.
  Error with_where(const std::string& where) const;

 private:
  ErrorCode code_;
  std::string what_, hint_, where_, text_;
};

int exit_status(ErrorCode code);

}  // namespace slimexx
