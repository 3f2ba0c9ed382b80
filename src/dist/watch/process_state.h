// State of a process on this host, from /proc.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace slimexx::dist {

// A process under a debugger counts as running, since its user watches it.
enum class ProcessState : uint8_t { kRuns, kStopped, kGone };

// `start_time`: an earlier result of start_time(), to detect that the pid was reused.
ProcessState process_state(pid_t pid, uint64_t start_time);
// In ticks since boot; 0 if there is no such process or /proc cannot be read.
uint64_t start_time(pid_t pid);

// Identifies the boot of this host and the pid namespace: equal for processes that see each other.
std::string process_space();

}  // namespace slimexx::dist
