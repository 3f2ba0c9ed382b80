#include "slimexx/dist/make_once.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <random>
#include <vector>

#include "slimexx/tensor/tensor.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

// Random, because processes on two hosts or in two containers may have the same pid.
int64_t own_token() {
  static const int64_t token = [] {
    std::random_device source;
    return static_cast<int64_t>(uint64_t{source()} << 32 | source());
  }();
  return token;
}

}  // namespace

bool are_in_one_process(Collective& host) {
  if (host.size() == 1) return true;
  std::array<int64_t, 2> own{own_token(), ::getpid()};  // a forked process has its parent's token
  std::vector<int64_t> all(own.size() * static_cast<size_t>(host.size()));
  host.all_gather({}, Tensor(all.data(), DType::kI64, {}, {std::ssize(all)}),
                  Tensor(own.data(), DType::kI64, {}, {std::ssize(own)}));
  for (size_t i = 0; i < all.size(); ++i)
    if (all[i] != own[i % own.size()]) return false;
  return true;
}

const void* share_address(Collective& host, const void* address) {
  static_assert(sizeof(address) == sizeof(int64_t));
  auto value = std::bit_cast<int64_t>(address);
  if (host.size() > 1) host.broadcast({}, Tensor(&value, DType::kI64, {}, {1}), 0);
  return std::bit_cast<const void*>(value);
}

}  // namespace slimexx::dist
