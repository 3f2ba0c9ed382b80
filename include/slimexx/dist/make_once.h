// When ranks are threads of one process, they build read-only objects once and share them: file
// headers, the grid's layout, plans. Otherwise hundreds of ranks would each spend that time and
// memory.
#pragma once
#include <exception>
#include <memory>
#include <type_traits>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// Whether all ranks are threads of one process. `host` is on host memory; collective over it.
bool are_in_one_process(Collective& host);

// Returns rank 0's address on every rank; all ranks must be in one process. Collective.
const void* share_address(Collective& host, const void* address);

// Returns the result of `make`, or throws its exception, on every rank. If all ranks are in one
// process, rank 0 calls `make` and all share the result; otherwise each rank calls it. So `make`
// must give equal results on every rank and must not call collectives. On host memory; collective.
template <class Make>
auto make_once(Collective& host, const Make& make)
    -> std::shared_ptr<const std::invoke_result_t<const Make&>> {
  using Value = const std::invoke_result_t<const Make&>;
  if (!are_in_one_process(host)) return std::make_shared<Value>(make());
  struct Made {
    std::shared_ptr<Value> value;
    std::exception_ptr error;
  } made;
  if (host.rank() == 0) {
    try {
      made.value = std::make_shared<Value>(make());
    } catch (...) {
      made.error = std::current_exception();
    }
  }
  const Made taken = *static_cast<const Made*>(share_address(host, &made));
  host.barrier();  // rank 0's `made` must outlive the reads
  if (taken.error) std::rethrow_exception(taken.error);
  return taken.value;
}

}  // namespace slimexx::dist
