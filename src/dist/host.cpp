#include "slimexx/dist/host.h"

#include <algorithm>

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor view_bytes(std::string& bytes) {
  return Tensor(bytes.data(), DType::kU8, {}, {static_cast<int64_t>(bytes.size())});
}

// [rank * n + i]
std::vector<double> gather_doubles(Collective& host, std::span<double> values) {
  const auto n = static_cast<int64_t>(values.size());
  std::vector<double> all(values.size() * static_cast<size_t>(host.size()));
  host.all_gather({}, Tensor(all.data(), DType::kF64, {}, {n * host.size()}),
                  Tensor(values.data(), DType::kF64, {}, {n}));
  return all;
}

}  // namespace

std::string broadcast_bytes(Collective& host, const std::string& bytes, int root) {
  if (host.size() == 1) return bytes;
  auto n = static_cast<int64_t>(bytes.size());
  host.broadcast({}, Tensor(&n, DType::kI64, {}, {1}), root);
  std::string result = bytes;
  result.resize(static_cast<size_t>(n));
  host.broadcast({}, view_bytes(result), root);
  return result;
}

std::vector<std::string> all_gather_bytes(Collective& host, const std::string& bytes) {
  std::vector<std::string> all;
  for (int root = 0; root < host.size(); ++root)
    all.push_back(broadcast_bytes(host, host.rank() == root ? bytes : std::string(), root));
  return all;
}

void all_reduce_sum(Collective& host, std::span<double> values) {
  if (host.size() == 1) return;
  const std::vector<double> all = gather_doubles(host, values);
  std::ranges::fill(values, 0.0);
  for (size_t i = 0; i < all.size(); ++i) values[i % values.size()] += all[i];
}

void all_reduce_max(Collective& host, std::span<double> values) {
  if (host.size() == 1) return;
  const std::vector<double> all = gather_doubles(host, values);
  for (size_t i = 0; i < all.size(); ++i)
    values[i % values.size()] = std::max(values[i % values.size()], all[i]);
}

}  // namespace slimexx::dist
