// How ranks fail together. An Error on one rank alone leaves the others waiting in a collective,
// and the job can only be ended. Where the ranks ask each other first, all throw, and what follows
// may still be collective: a last checkpoint.
#pragma once
#include <functional>
#include <string>

#include "slimexx/base/error.h"
#include "slimexx/dist/collective.h"

namespace slimexx::dist {

// An Error that every rank throws at the same place.
class AgreedError : public Error {
 public:
  explicit AgreedError(const Error& error) : Error(error) {}
};

// An error on its way to another rank, and what all ranks throw then: it names the rank that
// failed.
std::string pack_error(const Error& error);
Error unpack_error(const std::string& bytes, int rank, int num_ranks);

// Runs `work`, which must call nothing collective. If it throws an Error on some rank, all ranks
// throw the AgreedError of the first such rank. Collective over `host`, on host memory.
void run_agreed(Collective& host, const std::function<void()>& work);

}  // namespace slimexx::dist
