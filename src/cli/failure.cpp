#include "cli/failure.h"

#include <fmt/core.h>

#include <chrono>
#include <cstdio>
#include <new>
#include <string_view>
#include <thread>

#include "cli/standard_output.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/terminal.h"
#include "slimexx/dist/world.h"

namespace slimexx::cli {
namespace {

// Time for rank 0 to print its error and for the launcher to end the other ranks.
constexpr auto kPatience = std::chrono::milliseconds(700);

std::string paint(const std::string& text) {
  constexpr std::string_view kWord = "error:";
  if (!wants_colour() || !text.starts_with(kWord)) return text;
  return fmt::format("\033[1;31m{}\033[0m{}", kWord, text.substr(kWord.size()));
}

// Ignores write errors: the exit status still reports the failure.
void write_stderr(const std::string& text) {
  std::fputs((text + "\n").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace

Failure describe_current_exception() {
  try {
    throw;
  } catch (const Error& e) {
    return {exit_status(e.code()), e.what(), e.code() == ErrorCode::kInterrupted};
  } catch (const ReaderGone&) {
    return {kReaderGoneStatus, ""};
  } catch (const std::bad_alloc&) {
    const Error e(ErrorCode::kEnvironment, "the host is out of memory",
                  "use a smaller model, smaller batches, or a host with more memory");
    return {exit_status(e.code()), e.what()};
  } catch (const std::exception& e) {
    const Error fault(ErrorCode::kRun, e.what(), "this is a bug in slimexx; please report it");
    return {exit_status(fault.code()), fault.what()};
  }
}

void report_failure(const Failure& failure, dist::World* world) {
  const bool several = world != nullptr && world->size() > 1;
  if (failure.is_interrupt) {  // all ranks stop together, after the checkpoint
    if (!several || world->rank() == 0) write_stderr(failure.text);
    return;
  }
  if (failure.text.empty()) {
    if (several) world->abort(failure.status);
    return;
  }
  if (several && world->rank() != 0) std::this_thread::sleep_for(kPatience);
  std::fflush(stdout);
  std::string text = paint(failure.text);
  if (several) {
    const std::string rule(72, '=');
    const std::string phase = failed_phase();
    text = fmt::format(
        "{0}\n"
        "rank {1} of {2} failed and stops the others (host {3}{4})\n"
        "{5}\n"
        "{0}",
        rule, world->rank(), world->size(), host_name(), phase.empty() ? "" : ", phase " + phase,
        text);
  }
  write_stderr(text);
  if (several) world->abort(failure.status);
}

}  // namespace slimexx::cli
