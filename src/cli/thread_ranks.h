// Verbs whose ranks may be threads of one process.
#pragma once
#include <functional>
#include <string>

#include "cli/verbs.h"
#include "slimexx/dist/world.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::cli {

// Adds --thread-ranks N; 0: ranks are processes.
void add_thread_ranks_flag(CLI::App& app, int& thread_ranks);

// Runs `body` on this rank, or on `thread_ranks` ranks that are threads, each with its own session.
// Throws Error(kUsage) if thread ranks are requested with several processes.
void run_on_ranks(int thread_ranks, Session& session, const std::function<void(Session&)>& body);

// The device of this rank for the flag's value `name`. Thread ranks use the CPU by default; on a
// GPU they share the first one.
tensor::Device select_rank_device(const dist::World& world, const std::string& name);

}  // namespace slimexx::cli
