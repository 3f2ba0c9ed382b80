// Ranks as threads of this process.
#pragma once
#include <functional>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// Runs `body` as `size` ranks, each on its own thread, on host memory, and returns when all have
// finished. If a rank throws, collectives of the other ranks throw Error(kRun) that names it, and
// run_thread_ranks rethrows its exception.
void run_thread_ranks(int size, const std::function<void(Collective&)>& body);

}  // namespace slimexx::dist
