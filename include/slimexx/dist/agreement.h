// Agreement on errors. If one rank alone throws an Error, the others wait in a collective for ever
// and the job must be killed. With run_agreed all ranks throw, so that later calls may still be
// collective: for example, to save a last checkpoint.
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

// Serializes an error for other ranks. The unpacked error, which all ranks throw, names the rank
// that failed.
std::string pack_error(const Error& error);
Error unpack_error(const std::string& bytes, int rank, int num_ranks);

// Runs `work`, which must not call collectives. If it throws an Error on any rank, all ranks throw
// the AgreedError of the first rank that failed. Collective over `host`, on host memory.
void run_agreed(Collective& host, const std::function<void()>& work);

}  // namespace slimexx::dist
