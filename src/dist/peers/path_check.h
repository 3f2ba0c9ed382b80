// A debug check. Each rank decides for itself whether a collective call goes through kernels on
// peer memory or through messages, from facts that must be the same on all ranks (where the tensor
// lies, its size, the stream). If two ranks decide differently, both wait for ever.
#pragma once
#include <cstdint>

#include "dist/backend.h"
#include "slimexx/base/activity.h"

namespace slimexx::dist {

// With SLX_CHECK_PATHS=N in the environment, the ranks of a group compare every Nth decision before
// they continue: its number, path and size in bytes. If decisions differ, every rank throws an
// Error(kCheck) that names two ranks. The check waits for the device; calls captured into a graph
// are not checked.
void check_path(Backend& backend, tensor::Stream stream, const ShortName& group, bool by_kernels,
                int64_t size_bytes);

}  // namespace slimexx::dist
