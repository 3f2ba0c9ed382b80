// What every Communicator must do; each returns a description of the first difference, empty if
// none.
#pragma once
#include <fmt/format.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "slimexx/dist/communicator.h"

namespace slimexx::dist {

// Two at a time: both start at 0, whatever earlier ones were left at, and give each ticket once.
inline std::string check_counter(Communicator& c) {
  const auto first = c.make_counter(), second = c.make_counter();
  for (SharedCounter* counter : {first.get(), second.get()}) {
    double total[1] = {0};
    for (int i = 0; i < 50; ++i) total[0] += static_cast<double>(counter->fetch_add(1));
    c.all_reduce_sum(total);
    const double tickets = 50.0 * c.size();
    if (total[0] != tickets * (tickets - 1) / 2)
      return fmt::format("counter: tickets sum to {}", total[0]);
  }
  return "";
}

// Drawing tickets, and giving the counter up, needs nothing of the rank that owns the number: it
// computes meanwhile, or waits elsewhere for a rank that is failing.
inline std::string check_counter_of_absent_rank(Communicator& c) {
  constexpr auto kAbsence = std::chrono::milliseconds(1500);
  auto counter = c.make_counter();
  const auto start = std::chrono::steady_clock::now();
  if (c.rank() == 0) std::this_thread::sleep_for(kAbsence);
  for (int i = 0; i < 50; ++i) counter->fetch_add(1);
  counter.reset();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  c.barrier();
  if (c.rank() != 0 && taken >= kAbsence)
    return fmt::format("counter: rank {} waited {} s for rank 0", c.rank(), taken.count());
  return "";
}

inline std::string check_collectives(Communicator& c) {
  const int rank = c.rank(), size = c.size();
  const std::string mine(static_cast<size_t>(rank * 3), static_cast<char>('a' + rank));
  const auto all = c.all_gather(mine);
  for (int r = 0; r < size; ++r) {
    const std::string expected(static_cast<size_t>(r * 3), static_cast<char>('a' + r));
    if (all[static_cast<size_t>(r)] != expected)
      return fmt::format("all_gather: rank {} got \"{}\"", rank, all[static_cast<size_t>(r)]);
  }
  if (c.broadcast(mine, size - 1) !=
      std::string(static_cast<size_t>((size - 1) * 3), static_cast<char>('a' + size - 1)))
    return "broadcast";

  // 1e16 + 1 + ... in rank order loses the ones that another order would keep.
  double sum[2] = {rank == 0 ? 1e16 : 1.0, static_cast<double>(rank)};
  double expected = 1e16;
  for (int r = 1; r < size; ++r) expected += 1.0;
  c.all_reduce_sum(sum);
  if (sum[0] != expected || sum[1] != size * (size - 1) / 2.0)
    return fmt::format("all_reduce_sum {} {}", sum[0], sum[1]);
  double max[1] = {static_cast<double>(-rank)};
  c.all_reduce_max(max);
  if (max[0] != 0) return "all_reduce_max";

  const int64_t n = 1000;
  const auto ranges = split_range(n, size);
  std::vector<float> data(n), scratch(static_cast<size_t>(n + 16 * size));
  for (int64_t i = 0; i < n; ++i)
    data[static_cast<size_t>(i)] = 0.1f * static_cast<float>((rank + 1) * i);
  c.reduce_scatter_sum(data, ranges, scratch);
  c.all_gather_ranges(data.data(), 4, ranges);
  for (int64_t i = 0; i < n; ++i) {
    float want = 0.1f * static_cast<float>(i);
    for (int r = 1; r < size; ++r) want += 0.1f * static_cast<float>((r + 1) * i);
    if (data[static_cast<size_t>(i)] != want) {
      return fmt::format("reduce_scatter: rank {} element {}: {} wanted {}", rank, i,
                         data[static_cast<size_t>(i)], want);
    }
  }

  for (int round = 0; round < 3; ++round) {
    if (const std::string fault = check_counter(c); !fault.empty())
      return fmt::format("{} (round {})", fault, round);
  }
  if (const std::string fault = check_counter_of_absent_rank(c); !fault.empty()) return fault;
  c.barrier();
  return "";
}

}  // namespace slimexx::dist
