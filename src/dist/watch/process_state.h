// What Linux knows of a process of this host.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

namespace slimexx::dist {

// Of a process that is being traced (a debugger) nothing is known: somebody looks after it.
enum class ProcessState : uint8_t { kRuns, kStopped, kGone };

// `start_time`: as start_time() said; another process may have the number by now.
ProcessState process_state(pid_t pid, uint64_t start_time);
// In ticks since the start of the host; 0 if there is no such process, or /proc is not to be read.
uint64_t start_time(pid_t pid);

// The same for processes that see each other: this start of this host, and their space of pids.
std::string process_space();

}  // namespace slimexx::dist
