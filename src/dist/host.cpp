#include "slimexx/dist/host.h"

#include <algorithm>

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor view_bytes(std::string& bytes) {
  return Tensor(bytes.data(), DType::kU8, {}, {static_cast<int64_t>(bytes.size())});
}

// Upper bound on padding elements per rank: its share of a sum is rounded up, and the arena aligns
// it.
constexpr int64_t kMostRounding = 64;

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
  if (host.size() == 1) return {bytes};
  auto own = static_cast<int64_t>(bytes.size());
  std::vector<int64_t> sizes(static_cast<size_t>(host.size()));
  host.all_gather({}, Tensor(sizes.data(), DType::kI64, {}, {host.size()}),
                  Tensor(&own, DType::kI64, {}, {1}));
  std::vector<Range> ranges;
  for (const int64_t size : sizes) {
    const int64_t begin = ranges.empty() ? 0 : ranges.back().end;
    ranges.push_back({begin, begin + size});
  }
  std::string joined(static_cast<size_t>(ranges.back().end), '\0');
  std::ranges::copy(bytes, joined.begin() + ranges[static_cast<size_t>(host.rank())].begin);
  host.all_gather_ranges({}, view_bytes(joined), ranges);
  std::vector<std::string> all;
  for (const Range& range : ranges)
    all.push_back(
        joined.substr(static_cast<size_t>(range.begin), static_cast<size_t>(range.size())));
  return all;
}

void all_reduce_sum(Collective& host, std::span<double> values) {
  if (host.size() == 1 || values.empty()) return;
  // Each rank sums one share. Gathering all terms on every rank would need `size` times the memory.
  const auto n = static_cast<int64_t>(values.size());
  const int64_t most_terms = n + host.size() * kMostRounding;
  tensor::Arena scratch({}, most_terms * tensor::dtype_bytes(DType::kF64), "sums of the host");
  host.all_reduce_sum({}, scratch, Tensor(values.data(), DType::kF64, {}, {n}), SumOrder::kRank);
}

void all_reduce_max(Collective& host, std::span<double> values) {
  if (host.size() == 1) return;
  const std::vector<double> all = gather_doubles(host, values);
  for (size_t i = 0; i < all.size(); ++i)
    values[i % values.size()] = std::max(values[i % values.size()], all[i]);
}

}  // namespace slimexx::dist
