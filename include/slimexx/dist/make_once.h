// Ranks that are threads of one process make read-only things once for all of them: the headers of
// a folder, what every rank of a grid holds, plans. Of hundreds of ranks each would take as much
// time and memory as one.
#pragma once
#include <exception>
#include <memory>
#include <type_traits>

#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// Whether all ranks are threads of this process. `host` is on host memory; collective over it.
bool are_in_one_process(Collective& host);

// The first rank's address on every rank, which are all in one process. Collective.
const void* share_address(Collective& host, const void* address);

// What `make` returns, or what it throws, on every rank. Where all ranks are in one process, the
// first of them makes it and all have the same; else each makes its own. So `make` must give equal
// things on every rank and call nothing collective. On host memory; collective.
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
  host.barrier();  // then the first rank's may go
  if (taken.error) std::rethrow_exception(taken.error);
  return taken.value;
}

}  // namespace slimexx::dist
