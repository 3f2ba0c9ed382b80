// What main says when a verb threw.
#pragma once
#include <string>

#include "slimexx/dist/world.h"

namespace slimexx::cli {

// A shell's word for the death by SIGPIPE, which is how tools end whose reader has gone.
constexpr int kReaderGoneStatus = 141;

struct Failure {
  int status = 4;
  std::string text;  // "error: ...", with place and remedy on lines of their own; "": say nothing
  bool is_interrupt = false;
};

// Of the exception that is being handled; call inside a catch block.
Failure describe_current_exception();

// Prints it and ends the other ranks. Ranks that failed alike leave the word to rank 0.
void report_failure(const Failure& failure, dist::World* world);

}  // namespace slimexx::cli
