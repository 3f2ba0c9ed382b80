// A fixed set of worker threads for data-parallel loops on the CPU. parallel_for splits [0, n) into
// contiguous ranges whose bounds depend on n, grain and the pool's size only; an op whose result
// depends on the split breaks the numeric contract, so ops parallelise over outputs, never over
// sums.
#pragma once
#include <cstdint>
#include <functional>

namespace slimexx {

// Number of threads that parallel_for uses, the caller included. Set once at start (default: the
// cores this process may run on); 1 means no workers. Not while a parallel_for runs. Throws
// Error(kEnvironment) where the system refuses to start them; one thread is left then. A forked
// child has one.
void set_num_threads(int num_threads);
int num_threads();

// Calls body(begin, end) on disjoint ranges covering [0, n), each at least `grain` long but the
// last, and returns when all are done. Nested calls run in the calling thread. The first exception
// thrown by a body is rethrown here.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

}  // namespace slimexx
