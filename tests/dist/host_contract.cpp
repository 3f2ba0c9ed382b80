#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "dist/collective_contract.h"
#include "slimexx/dist/host.h"

namespace slimexx::dist {
namespace {

// Two counters at a time: both start at 0, whatever the value of earlier ones, and give out each
// ticket once.
std::string check_counter(Collective& host) {
  const auto first = host.make_counter(), second = host.make_counter();
  for (SharedCounter* counter : {first.get(), second.get()}) {
    double total[1] = {0};
    for (int i = 0; i < 50; ++i) total[0] += static_cast<double>(counter->fetch_add(1));
    all_reduce_sum(host, total);
    const double tickets = 50.0 * host.size();
    if (total[0] != tickets * (tickets - 1) / 2)
      return fmt::format("counter: tickets sum to {}", total[0]);
  }
  return "";
}

// Drawing tickets and destroying the counter needs no action of rank 0, which owns the counter:
// that rank may be computing, or waiting for a rank that is failing.
std::string check_counter_of_absent_rank(Collective& host) {
  constexpr auto kAbsence = std::chrono::milliseconds(1500);
  auto counter = host.make_counter();
  const auto start = std::chrono::steady_clock::now();
  if (host.rank() == 0) std::this_thread::sleep_for(kAbsence);
  for (int i = 0; i < 50; ++i) counter->fetch_add(1);
  counter.reset();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  host.barrier();
  if (host.rank() != 0 && taken >= kAbsence)
    return fmt::format("counter: rank {} waited {} s for rank 0", host.rank(), taken.count());
  return "";
}

std::string check_bytes(Collective& host) {
  const int rank = host.rank(), size = host.size();
  const auto text_of = [](int r) {
    return std::string(static_cast<size_t>(r * 3), static_cast<char>('a' + r));
  };
  const auto all = all_gather_bytes(host, text_of(rank));
  for (int r = 0; r < size; ++r) {
    if (all[static_cast<size_t>(r)] != text_of(r))
      return fmt::format("all_gather_bytes: rank {} got \"{}\"", rank, all[static_cast<size_t>(r)]);
  }
  return broadcast_bytes(host, text_of(rank), size - 1) == text_of(size - 1) ? ""
                                                                             : "broadcast_bytes";
}

std::string check_numbers(Collective& host) {
  const int rank = host.rank(), size = host.size();
  // In rank order, 1e16 + 1 + 1 ... loses the ones; another order would keep them.
  double sum[2] = {rank == 0 ? 1e16 : 1.0, static_cast<double>(rank)};
  double expected = 1e16;
  for (int r = 1; r < size; ++r) expected += 1.0;
  all_reduce_sum(host, sum);
  if (sum[0] != expected || sum[1] != size * (size - 1) / 2.0)
    return fmt::format("all_reduce_sum {} {}", sum[0], sum[1]);
  double max[1] = {static_cast<double>(-rank)};
  all_reduce_max(host, max);
  return max[0] == 0 ? "" : "all_reduce_max";
}

}  // namespace

std::string check_host(Collective& host) {
  for (int round = 0; round < 3; ++round) {
    for (const auto& check : {check_bytes, check_numbers, check_counter}) {
      if (const std::string fault = check(host); !fault.empty())
        return fmt::format("{} (round {})", fault, round);
    }
  }
  return check_counter_of_absent_rank(host);
}

}  // namespace slimexx::dist
