// A fixed set of worker threads for data-parallel loops on the CPU. parallel_for splits [0, n) into
// contiguous ranges that depend only on n, grain and the pool's size. Results must not depend on
// the split (numerics contract), so ops parallelize over outputs, never over sums.
#pragma once
#include <cstdint>
#include <functional>

namespace slimexx {

// Number of threads of parallel_for, including the caller. Set it once at the start (default: the
// cores available to this process); 1 means no workers. Do not call it while a parallel_for runs.
// If the system cannot start the threads, leaves one thread and throws Error(kEnvironment). A
// forked child has one thread.
void set_num_threads(int num_threads);
int num_threads();

// Calls body(begin, end) on disjoint ranges that cover [0, n), each at least `grain` long except
// the last, and returns when all are done. Nested calls run in the calling thread. Rethrows the
// first exception of a body.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace slimexx
