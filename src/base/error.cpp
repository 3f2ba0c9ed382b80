#include "slimexx/base/error.h"

#include "slimexx/base/printable.h"

namespace slimexx {
namespace {

// `what` holds names and texts from files; hints and places hold paths and commands to copy.
constexpr size_t kMaxWhatBytes = 1000, kMaxPathBytes = 8192;

}  // namespace

Error::Error(ErrorCode code, std::string what, std::string hint, std::string where)
    : code_(code),
      what_(make_printable_lines(what, kMaxWhatBytes)),
      hint_(make_printable_lines(hint, kMaxPathBytes)),
      where_(make_printable(where, kMaxPathBytes)) {
  text_ = "error: " + what_;
  if (!where_.empty()) text_ += "\n  at: " + where_;
  if (!hint_.empty()) text_ += "\n  hint: " + hint_;
}

Error Error::with_where(const std::string& where) const {
  return where_.empty() ? Error(code_, what_, hint_, where) : *this;
}

int exit_status(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUsage:
    case ErrorCode::kInput:
      return 2;
    case ErrorCode::kEnvironment:
      return 3;
    case ErrorCode::kRun:
      return 4;
    case ErrorCode::kCheck:
      return 5;
    case ErrorCode::kInterrupted:
      return 130;
  }
  return 4;
}

}  // namespace slimexx
