// What every DeviceCommunicator over all ranks of `host` must do; returns a description of the
// first difference, empty if none.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/dist/device_communicator.h"

namespace slimexx::dist {

struct ExchangeCase {
  std::string name;
  std::vector<Range> ranges;
};

// Equal tiles, as split_range cuts, growing with the rank, each rank alone, with elements between
// that belong to nobody.
inline std::vector<ExchangeCase> exchange_cases(int64_t n, int size) {
  std::vector<ExchangeCase> cases;
  std::vector<Range> tiles, growing;
  const int64_t tile = n / size, step = n / (size * (size + 1) / 2);
  int64_t at = 0;
  for (int r = 0; r < size; ++r) {
    tiles.push_back({r * tile, (r + 1) * tile});
    const int64_t length = step * (r + 1);
    growing.push_back({at, at + length - (r % 2 == 0 ? 3 : 0)});
    at += length;
  }
  cases.push_back({"tiles", tiles});
  cases.push_back({"split", split_range(n, size)});
  cases.push_back({"growing", growing});
  for (int owner = 0; owner < size; ++owner) {
    std::vector<Range> alone(static_cast<size_t>(size));
    alone[static_cast<size_t>(owner)] = {n / 3, n - 5};
    cases.push_back({fmt::format("alone {}", owner), alone});
  }
  return cases;
}

// Parts of many sizes, gathered at once; split evenly, unequal where 16 does not divide them.
inline ExchangeCase many_parts(int64_t n, int size) {
  ExchangeCase test{"parts", {}};
  for (int64_t begin = 0, length = 16; begin < n; length *= 3) {
    const int64_t end = std::min(n, begin + length);
    for (const Range& r : split_range(end - begin, size))
      test.ranges.push_back({begin + r.begin, begin + r.end});
    begin = end;
  }
  return test;
}

// Rank r's element i: another function of the rank, or multiples of 2^-10, whose sums are exact.
inline std::vector<float> exchange_values(int rank, int64_t n, bool exact) {
  PhiloxStream random(static_cast<uint64_t>(100 + rank), 3);
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) {
    v = exact ? static_cast<float>(static_cast<int>(random.next_below(4001)) - 2000) / 1024
              : static_cast<float>(random.next_normal());
  }
  return values;
}

struct Addends {
  bool exact = false;
  std::vector<float> own;
  std::vector<double> sum, magnitude;  // over ranks, of the values and of their absolute values
};

inline Addends make_addends(const DeviceCommunicator& c, int64_t n, bool exact) {
  Addends a{.exact = exact, .own = exchange_values(c.rank(), n, exact), .sum = {}, .magnitude = {}};
  a.sum.resize(a.own.size());
  a.magnitude.resize(a.own.size());
  for (int r = 0; r < c.size(); ++r) {
    const auto values = exchange_values(r, n, exact);
    for (size_t i = 0; i < values.size(); ++i) {
      a.sum[i] += values[i];
      a.magnitude[i] += std::abs(values[i]);
    }
  }
  return a;
}

// Three times, for equal bits.
inline std::string check_reduction(DeviceCommunicator& c, tensor::Stream stream,
                                   const tensor::Tensor& data, const ExchangeCase& test,
                                   const Addends& addends) {
  const int64_t n = data.num_elements();
  std::vector<float> first, now(addends.own.size());
  for (int run = 0; run < 3; ++run) {
    tensor::upload(stream, data, addends.own.data());
    c.reduce_scatter_sum(stream, data, test.ranges);
    tensor::download(stream, now.data(), data);
    if (run == 0) first = now;
    const Range mine = test.ranges[static_cast<size_t>(c.rank())];
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool is_mine = mine.begin <= i && i < mine.end;
      const double want = is_mine ? addends.sum[at] : addends.own[at];
      // An addition rounds by 2^-24 of what it has summed so far.
      const double bound =
          is_mine && !addends.exact ? (c.size() - 1) * addends.magnitude[at] / (1 << 24) : 0;
      if (!(std::abs(now[at] - want) <= bound) ||
          std::bit_cast<uint32_t>(now[at]) != std::bit_cast<uint32_t>(first[at])) {
        return fmt::format(
            "{}, {} elements, rank {} of {}, run {}: [{}] is {:.9g}, at first {:.9g}, "
            "wanted {:.9g}",
            test.name, n, c.rank(), c.size(), run, i, now[at], first[at], want);
      }
    }
  }
  return "";
}

inline std::string check_gather(DeviceCommunicator& c, tensor::Stream stream, tensor::Device device,
                                int64_t n, tensor::DType dtype, const ExchangeCase& test) {
  const int64_t width = tensor::dtype_bytes(dtype);
  const tensor::Buffer buffer(device, n * width, "exchange test");
  const tensor::Tensor data = buffer.view(dtype, {n});
  const auto byte_of = [&](int rank, size_t i) {
    return static_cast<char>((i * 31 + (i >> 8) * 17 + static_cast<size_t>(rank) * 101) % 251);
  };
  std::vector<char> bytes(static_cast<size_t>(n * width));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = byte_of(c.rank(), i);
  tensor::upload(stream, data, bytes.data());
  c.all_gather_ranges(stream, data, test.ranges);
  tensor::download(stream, bytes.data(), data);
  for (size_t i = 0; i < bytes.size(); ++i) {
    int owner = c.rank();
    const auto element = static_cast<int64_t>(i) / width;
    for (size_t r = 0; r < test.ranges.size(); ++r) {
      const Range range = test.ranges[r];
      if (range.begin <= element && element < range.end) owner = static_cast<int>(r) % c.size();
    }
    if (bytes[i] != byte_of(owner, i))
      return fmt::format("gather {}, {} elements, rank {} of {}: byte {} is not rank {}'s",
                         test.name, n, c.rank(), c.size(), i, owner);
  }
  return "";
}

inline std::string check_device_exchange(DeviceCommunicator& c, Communicator& host,
                                         tensor::Device device) {
  for (const int64_t n : {int64_t{1000}, int64_t{65536}, int64_t{2000016}}) {
    const tensor::Buffer buffer(device, n * 4, "exchange test");
    const tensor::Tensor data = buffer.view(tensor::DType::kF32, {n});
    const Addends addends[] = {make_addends(c, n, true), make_addends(c, n, false)};
    for (const tensor::DType dtype : {tensor::DType::kBF16, tensor::DType::kF32}) {
      const auto fault = check_gather(c, tensor::compute_stream(device), device, n, dtype,
                                      many_parts(n, c.size()));
      if (!fault.empty()) return fault;
    }
    for (const ExchangeCase& test : exchange_cases(n, c.size())) {
      std::vector<std::string> faults;
      for (const tensor::Stream& stream :
           {tensor::compute_stream(device), tensor::side_stream(device)}) {
        for (const Addends& a : addends)
          faults.push_back(check_reduction(c, stream, data, test, a));
        for (const tensor::DType dtype :
             {tensor::DType::kBF16, tensor::DType::kF32, tensor::DType::kU8})
          faults.push_back(check_gather(c, stream, device, n, dtype, test));
      }
      for (const auto& fault : faults) {
        if (!fault.empty()) return fault;
      }
    }
  }
  host.barrier();
  return "";
}

}  // namespace slimexx::dist
