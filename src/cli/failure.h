// How main reports an exception from a verb.
#pragma once
#include <string>

#include "slimexx/dist/world.h"

namespace slimexx::cli {

// The shell's exit status for a program that SIGPIPE killed because its output pipe was closed.
constexpr int kReaderGoneStatus = 141;

struct Failure {
  int status = 4;
  std::string text;  // "error: ...", with place and hint on separate lines; "": print nothing
  bool is_interrupt = false;
};

// Describes the current exception; call it inside a catch block.
Failure describe_current_exception();

// Prints the failure and ends the other ranks. Ranks above 0 wait first, so that rank 0 prints a
// failure that all ranks have.
void report_failure(const Failure& failure, dist::World* world);

}  // namespace slimexx::cli
