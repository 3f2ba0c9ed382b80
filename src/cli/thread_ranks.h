// Verbs whose ranks may be threads of one process.
#pragma once
#include <functional>
#include <string>

#include "cli/verbs.h"

namespace slimexx::cli {

// --thread-ranks N; 0: ranks are processes.
void add_thread_ranks_flag(CLI::App& app, int& thread_ranks);

// Runs `body` on this rank, or on `thread_ranks` ranks that are threads, each with a session of its
// own. Throws Error(kUsage) for threads where there are several processes, or on a device.
void run_on_ranks(int thread_ranks, const std::string& device, Session& session,
                  const std::function<void(Session&)>& body);

}  // namespace slimexx::cli
