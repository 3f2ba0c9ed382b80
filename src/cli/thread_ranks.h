// Verbs whose ranks may be threads of one process.
#pragma once
#include <functional>
#include <string>

#include "cli/verbs.h"
#include "slimexx/dist/world.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::cli {

// --thread-ranks N; 0: ranks are processes.
void add_thread_ranks_flag(CLI::App& app, int& thread_ranks);

// Runs `body` on this rank, or on `thread_ranks` ranks that are threads, each with a session of its
// own. Throws Error(kUsage) for threads where there are several processes.
void run_on_ranks(int thread_ranks, Session& session, const std::function<void(Session&)>& body);

// The device of this rank by the flag's `name`. Ranks that are threads are on the CPU unless told
// otherwise, and share the first GPU.
tensor::Device select_rank_device(const dist::World& world, const std::string& name);

}  // namespace slimexx::cli
