// Tests the kernels that dispatch rows to the experts of other ranks and return them. Ranks are
// threads, all on one device or each on its own. The value of each element encodes its origin.
#include "slimexx/ops/peer_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ostream>

#include "slimexx/base/philox.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/expert_placement.h"

namespace slimexx::ops {
namespace {

struct PeerCase {
  const char* name;
  int ranks;
  int64_t copies, top_k, width;
  std::vector<int64_t> tokens;  // per rank; they rotate from call to call
};
void PrintTo(const PeerCase& c, std::ostream* out) { *out << c.name; }

// The inputs of one call, which every rank can compute for all ranks.
struct Call {
  const PeerCase& of;
  int64_t number = 0;

  int64_t num_tokens(int rank) const {
    const auto turn = static_cast<size_t>(rank + number) % of.tokens.size();
    return of.tokens[turn];
  }
  // [tokens, k], ascending in each row.
  std::vector<int32_t> ids(int rank) const {
    PhiloxStream random(static_cast<uint64_t>(1000 * number + rank), 3);
    std::vector<int32_t> all;
    for (int64_t t = 0; t < num_tokens(rank); ++t) {
      std::vector<int32_t> row;
      while (std::ssize(row) < of.top_k) {
        // Copy 0 gets many rows, the last copy none.
        const auto id = static_cast<int32_t>(
            random.next_below(2) == 0 ? row.size()
                                      : random.next_below(static_cast<uint64_t>(of.copies - 1)));
        if (std::ranges::find(row, id) == row.end()) row.push_back(id);
      }
      std::ranges::sort(row);
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
  uint16_t input(int rank, int64_t token, int64_t column) const {
    return static_cast<uint16_t>(number * 7001 + rank * 977 + token * 131 + column);
  }
  static uint16_t second(uint16_t input) { return static_cast<uint16_t>(input * 5 + 1); }
  float value(int rank, int64_t choice) const {
    return static_cast<float>(number * 131072 + rank * 16384 + choice);
  }
  uint16_t result(int64_t copy, int rank, int64_t token, int64_t column) const {
    return static_cast<uint16_t>(input(rank, token, column) * 3 + copy * 17);
  }
};

struct Received {
  int64_t copy;
  int rank;
  int64_t token;
  int64_t choice;
};
// The rows that the holder of copies [first, end) receives, in their order.
std::vector<Received> list_received(const Call& call, const dist::Range& held) {
  std::vector<Received> rows;
  for (int64_t copy = held.begin; copy < held.end; ++copy)
    for (int rank = 0; rank < call.of.ranks; ++rank) {
      const std::vector<int32_t> ids = call.ids(rank);
      for (size_t i = 0; i < ids.size(); ++i)
        if (ids[i] == copy)
          rows.push_back(
              {copy, rank, static_cast<int64_t>(i) / call.of.top_k, static_cast<int64_t>(i)});
    }
  return rows;
}

class PeerRowsCuda : public testing::TestWithParam<PeerCase> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
  }
};

// One rank's part of a call, with all checks.
void run_call(const Context& ctx, const Call& call) {
  using enum tensor::DType;
  const PeerCase& c = call.of;
  const int rank = ctx.groups.ep.rank();
  const int64_t tokens = call.num_tokens(rank), rows = tokens * c.top_k;
  const tensor::ArenaScope scope(ctx.arena);
  const auto integers = [&](int64_t n) { return ctx.arena.allocate(kI32, {n}); };
  const RoutedRows routed{.offsets = integers(c.copies + 1),
                          .choices = integers(rows),
                          .tokens = integers(rows),
                          .rows = ctx.arena.allocate(kI32, {tokens, c.top_k})};
  const Tensor ids = ctx.arena.allocate(kI32, {tokens, c.top_k});
  const Tensor x = ctx.arena.allocate(kBF16, {tokens, c.width}),
               second = ctx.arena.allocate(kBF16, {tokens, c.width}),
               returned = ctx.arena.allocate(kBF16, {rows, c.width});
  const Tensor weights = ctx.arena.allocate(kF32, {tokens, c.top_k}),
               returned_values = ctx.arena.allocate(kF32, {tokens, c.top_k});
  std::vector<float> numbers;
  for (int64_t choice = 0; choice < rows; ++choice) numbers.push_back(call.value(rank, choice));
  tensor::upload(ctx.stream, weights, numbers.data());
  tensor::upload(ctx.stream, ids, call.ids(rank).data());
  std::vector<uint16_t> values;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t i = 0; i < c.width; ++i) values.push_back(call.input(rank, t, i));
  tensor::upload(ctx.stream, x, values.data());
  for (uint16_t& value : values) value = Call::second(value);
  tensor::upload(ctx.stream, second, values.data());
  sort_by_expert(ctx, routed, ids);

  const model::ExpertPlacement placement{c.copies, c.copies, c.ranks};
  const dist::Range held = placement.held_by(rank);
  const std::vector<Received> expected = list_received(call, held);
  const PeerRuns runs = allocate_peer_runs(ctx, held.begin, held.size());
  const Tensor offsets = integers(held.size() + 1);
  const int64_t most = std::ssize(expected) + 5;  // more than arrive
  const Tensor y = ctx.arena.allocate(kBF16, {most, c.width});
  const Tensor received_values = ctx.arena.allocate(kF32, {most});
  show_rows(ctx, runs, offsets,
            {.routed = routed,
             .x = x,
             .second = second,
             .returned = returned,
             .values = weights,
             .returned_values = returned_values});
  fetch_peer_values(ctx, runs, received_values);
  numbers.resize(static_cast<size_t>(most));
  tensor::download(ctx.stream, numbers.data(), received_values);
  for (size_t row = 0; row < expected.size(); ++row) {
    const Received& from = expected[row];
    ASSERT_EQ(numbers[row], call.value(from.rank, from.choice))
        << "rank " << rank << " row " << row << " call " << call.number;
    numbers[row] += 0.5f + static_cast<float>(from.copy);
  }
  tensor::upload(ctx.stream, received_values, numbers.data());
  return_peer_values(ctx, runs, received_values);
  fetch_peer_rows(ctx, runs, y, true);
  std::vector<uint16_t> seconds(static_cast<size_t>(y.num_elements()));
  tensor::download(ctx.stream, seconds.data(), y);
  fetch_peer_rows(ctx, runs, y);
  std::vector<int32_t> ends(static_cast<size_t>(offsets.dim(0)));
  tensor::download(ctx.stream, ends.data(), offsets);
  values.resize(static_cast<size_t>(y.num_elements()));
  tensor::download(ctx.stream, values.data(), y);
  for (int64_t copy = held.begin; copy <= held.end; ++copy) {
    const auto before =
        std::ranges::count_if(expected, [copy](const Received& row) { return row.copy < copy; });
    EXPECT_EQ(ends[static_cast<size_t>(copy - held.begin)], before)
        << "rank " << rank << " copy " << copy << " call " << call.number;
  }
  for (size_t row = 0; row < expected.size(); ++row)
    for (int64_t i = 0; i < c.width; ++i) {
      const Received& from = expected[row];
      uint16_t& value = values[row * static_cast<size_t>(c.width) + static_cast<size_t>(i)];
      ASSERT_EQ(value, call.input(from.rank, from.token, i))
          << "rank " << rank << " row " << row << " column " << i << " call " << call.number;
      ASSERT_EQ(seconds[row * static_cast<size_t>(c.width) + static_cast<size_t>(i)],
                Call::second(value));
      value = call.result(from.copy, from.rank, from.token, i);
    }
  for (size_t i = expected.size() * static_cast<size_t>(c.width); i < values.size(); ++i)
    ASSERT_EQ(values[i], 0) << "rank " << rank << " element " << i << " behind what came";
  tensor::upload(ctx.stream, y, values.data());
  return_peer_rows(ctx, runs, y);
  await_peer_rows(ctx);

  values.resize(static_cast<size_t>(returned.num_elements()));
  tensor::download(ctx.stream, values.data(), returned);
  std::vector<int32_t> choices(static_cast<size_t>(rows));
  tensor::download(ctx.stream, choices.data(), routed.choices);
  const std::vector<int32_t> own = call.ids(rank);
  numbers.resize(static_cast<size_t>(rows));
  tensor::download(ctx.stream, numbers.data(), returned_values);
  for (int64_t choice = 0; choice < rows; ++choice) {
    const auto at = static_cast<size_t>(choice);
    ASSERT_EQ(numbers[at], call.value(rank, choice) + 0.5f + static_cast<float>(own[at]))
        << "rank " << rank << " choice " << choice << " call " << call.number;
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t i = 0; i < c.width; ++i) {
      const int32_t choice = choices[static_cast<size_t>(row)];
      ASSERT_EQ(values[static_cast<size_t>(row * c.width + i)],
                call.result(own[static_cast<size_t>(choice)], rank, choice / c.top_k, i))
          << "rank " << rank << " returned row " << row << " column " << i << " call "
          << call.number;
    }
}

// `kernels_wait`: the expected value of PeerMemory::kernels_wait.
void run_calls(const PeerCase& c, dist::Collective& ranks, bool kernels_wait) {
  tensor::Arena arena(ranks.device(), int64_t{256} << 20, "test");
  const auto memory = dist::PeerMemory::make(ranks, arena.memory());
  ASSERT_NE(memory, nullptr);
  EXPECT_EQ(memory->kernels_wait(), kernels_wait);
  dist::Collective one;
  const dist::Groups groups{one, one, one, one, one, ranks, one, one, one, one, memory.get()};
  const Context ctx = compute_context(arena, groups);
  for (int64_t number = 0; number < 5; ++number) run_call(ctx, {c, number});
  ranks.barrier();  // keep this rank's memory until no other rank uses it
}

TEST_P(PeerRowsCuda, RowsComeAndGoOnOneDevice) {
  const PeerCase& c = GetParam();
  dist::run_thread_ranks(c.ranks, [&](dist::Collective& host) {
    run_calls(c, *host.on_device({tensor::DeviceType::kCuda, 0}), false);
  });
}

TEST_P(PeerRowsCuda, RowsComeAndGoBetweenDevices) {
  const PeerCase& c = GetParam();
  if (tensor::count_cuda_devices() < c.ranks) GTEST_SKIP() << "too few GPUs";
  dist::run_thread_ranks(c.ranks, [&](dist::Collective& host) {
    const tensor::Device device{tensor::DeviceType::kCuda, host.rank()};
    tensor::select_device(device);
    run_calls(c, *dist::make_device_collective(host, device), true);
  });
}

INSTANTIATE_TEST_SUITE_P(Cases, PeerRowsCuda,
                         testing::Values(PeerCase{"two_ranks", 2, 64, 4, 2048, {96, 1, 0, 300}},
                                         PeerCase{"uneven_copies", 3, 10, 3, 72, {17, 5, 0}},
                                         PeerCase{"most_copies", 4, 384, 8, 512, {40, 200, 3}},
                                         PeerCase{"wide_rows", 2, 16, 8, 7168, {33, 64}},
                                         PeerCase{"one_copy_each", 8, 8, 2, 8, {1, 2, 1000}}),
                         [](const auto& instance) { return instance.param.name; });

}  // namespace
}  // namespace slimexx::ops
