// The context for tests that run ops on the CPU and need no arena.
#pragma once
#include "slimexx/ops/context.h"

namespace slimexx {

inline ops::Context cpu_context() {
  thread_local tensor::Arena none({}, 0, "test");
  return ops::compute_context(none);
}

}  // namespace slimexx
