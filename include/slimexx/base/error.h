// The exception for errors of the user, their files or their host. Thrown anywhere and caught once
// in main, which prints it and exits with exit_status(code). Internal bugs use SLX_CHECK (check.h);
// expected absence uses std::optional.
#pragma once
#include <exception>
#include <string>

namespace slimexx {

enum class ErrorCode {
  kUsage,        // the command line or the configuration: exit 2
  kInput,        // a malformed input file: exit 2
  kEnvironment,  // host, library, permission, disk: exit 3
  kRun,          // the run failed after its start: exit 4
  kCheck,        // a check found a difference: exit 5
  kInterrupted,  // stopped by a signal after a checkpoint: exit 130
};

class Error : public std::exception {
 public:
  // what: the error with its values; hint: what the user should type or change next; where: the
  // user's file, line, byte offset or key. hint and where may be empty. All three are made
  // printable (printable.h).
  Error(ErrorCode code, std::string what, std::string hint = "", std::string where = "");
  const char* what() const noexcept override { return text_.c_str(); }
  ErrorCode code() const { return code_; }
  const std::string& message() const { return what_; }
  const std::string& hint() const { return hint_; }
  const std::string& where() const { return where_; }
  // "where: message", as one line of a report.
  std::string located_message() const { return where_.empty() ? what_ : where_ + ": " + what_; }
  // A copy with `where` set, if it is empty here.
  Error with_where(const std::string& where) const;

 private:
  ErrorCode code_;
  std::string what_, hint_, where_, text_;
};

int exit_status(ErrorCode code);

}  // namespace slimexx
