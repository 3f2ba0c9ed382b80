// Dispatch and combine of routed rows, bit for bit against the host. Ranks share one device, in two
// ways. Either each has its own stream, and their launches run concurrently and wait for one
// another; each launch is one thread block, so that all fit. Or all share one stream, in an order
// in which nothing has to wait. Links between devices are not checked here: they need several GPUs
// (tests/ops).
//
//   peer_rows_check [small | tiny]      for compute-sanitizer: check_size.h
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/kernels/peers.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/ranks/peer_ranks.cuh"
#include "tests/kernels/ranks/peer_rows_case.h"

namespace slimexx::kernels::testing {
namespace {

// Offsets at which a rank publishes its data; different on each rank.
ShownRows lay_out(const PeerCall& call, int rank) {
  int64_t at = 256 * (rank + 1);
  const auto take = [&at](int64_t bytes) {
    const int64_t begin = at;
    at += (bytes + 15) / 16 * 16;
    return begin;
  };
  const int64_t tokens = call.num_tokens(rank), rows = call.num_rows(rank);
  ShownRows shown;
  shown.tokens = tokens, shown.top_k = call.of.top_k;
  shown.offsets_at = take(4 * (call.of.copies + 1));
  shown.rows_at = take(4 * rows);
  for (int64_t& input : shown.inputs_at) input = take(2 * tokens * call.of.width);
  shown.returned_at = take(2 * rows * call.of.width);
  shown.values_at = take(4 * rows);
  shown.returned_values_at = take(4 * rows);
  if (at > kRegionBytes) std::printf("FAIL %s: the region is too small\n", call.of.name().c_str());
  failures += at > kRegionBytes;
  return shown;
}

template <class T>
void put(char* region, int64_t at, const std::vector<T>& values) {
  if (values.empty()) return;
  SLX_CUDA(
      cudaMemcpy(region + at, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
}
template <class T>
std::vector<T> take(const char* region, int64_t at, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  if (count > 0)
    SLX_CUDA(
        cudaMemcpy(values.data(), region + at, values.size() * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

// The memory of one rank in a call.
struct RankMemory {
  RankMemory(const PeerCall& call, int of_rank)
      : rank(of_rank),
        shown(lay_out(call, of_rank)),
        received(call.received_by(of_rank)),
        most(static_cast<int64_t>(received.size()) + 70),
        copies(call.of.held_by(of_rank).second - call.of.held_by(of_rank).first),
        runs(peer_runs_bytes(copies, call.of.ranks)),
        offsets(copies + 1),
        y(most * call.of.width),
        second(most * call.of.width),
        values(most) {}
  PeerRuns peer_runs(const PeerCall& call) const {
    return {.memory = runs.data(), .first_copy = call.of.held_by(rank).first, .copies = copies};
  }
  int rank;
  ShownRows shown;
  std::vector<PeerRow> received;
  int64_t most, copies;
  Array<char> runs;
  Array<int32_t> offsets;
  Bf16Array y, second;
  FloatArray values;
};

void show_operands(const PeerCall& call, const RankMemory& own, char* region) {
  const HostOrder& order = call.orders[own.rank];
  put(region, own.shown.offsets_at, order.offsets);
  put(region, own.shown.rows_at, order.rows);
  for (int input = 0; input < ShownRows::kMostInputs; ++input) {
    Bits elements;
    for (int64_t t = 0; t < own.shown.tokens; ++t)
      for (int64_t i = 0; i < call.of.width; ++i)
        elements.push_back(call.element(input, own.rank, t, i));
    put(region, own.shown.inputs_at[input], elements);
  }
  std::vector<float> values;
  for (int64_t choice = 0; choice < call.num_rows(own.rank); ++choice)
    values.push_back(call.value(own.rank, choice));
  put(region, own.shown.values_at, values);
}

void expect_received(const PeerCall& call, const RankMemory& own) {
  const std::string rank = " of rank " + std::to_string(own.rank);
  const auto [first, end] = call.of.held_by(own.rank);
  std::vector<int32_t> offsets;
  for (int64_t copy = first; copy <= end; ++copy)
    offsets.push_back(static_cast<int32_t>(
        std::count_if(own.received.begin(), own.received.end(),
                      [copy = copy](const PeerRow& row) { return row.copy < copy; })));
  expect_bits(("offsets" + rank).c_str(), own.offsets.get(), offsets, 1);
  for (int input = 0; input < ShownRows::kMostInputs; ++input) {
    Bits expected;
    for (const PeerRow& row : own.received)
      for (int64_t i = 0; i < call.of.width; ++i)
        expected.push_back(call.element(input, row.rank, row.token, i));
    // After the received rows come rows of zeros, then the earlier content.
    expected.resize(expected.size() + static_cast<size_t>(kReadBehindExperts * call.of.width), 0);
    expected.resize(static_cast<size_t>(own.most * call.of.width), 0xffff);
    expect_bits(("input " + std::to_string(input) + rank).c_str(),
                (input == 0 ? own.y : own.second).get(), expected, call.of.width);
  }
  std::vector<float> values = own.values.get(), expected;
  values.resize(own.received.size());
  for (const PeerRow& row : own.received) expected.push_back(call.value(row.rank, row.choice));
  expect_bits(("values" + rank).c_str(), values, expected, 1);
}

void set_results(const PeerCall& call, const RankMemory& own) {
  Bits rows;
  std::vector<float> values;
  for (const PeerRow& row : own.received) {
    for (int64_t i = 0; i < call.of.width; ++i) rows.push_back(call.result(row, i));
    values.push_back(call.returned_value(row));
  }
  own.y.set(rows);
  own.values.set(values);
}

void expect_returned(const PeerCall& call, const RankMemory& own, const char* region) {
  const std::string rank = " to rank " + std::to_string(own.rank);
  const HostOrder& order = call.orders[own.rank];
  Bits rows(static_cast<size_t>(call.num_rows(own.rank) * call.of.width));
  std::vector<float> values;
  for (int64_t choice = 0; choice < call.num_rows(own.rank); ++choice) {
    const PeerRow row{call.ids[own.rank][choice], own.rank, choice / call.of.top_k, choice};
    for (int64_t i = 0; i < call.of.width; ++i)
      rows[order.rows[choice] * call.of.width + i] = call.result(row, i);
    values.push_back(call.returned_value(row));
  }
  expect_bits(("rows" + rank).c_str(),
              take<uint16_t>(region, own.shown.returned_at, static_cast<int64_t>(rows.size())),
              rows, call.of.width);
  expect_bits(("values" + rank).c_str(),
              take<float>(region, own.shown.returned_values_at, call.num_rows(own.rank)), values,
              call.of.top_k);
}

// `waits`: each rank has its own stream. Otherwise all share the first stream.
void run_call(const PeerCall& call, Ranks& ranks, bool waits) {
  std::vector<std::unique_ptr<RankMemory>> all;
  for (int r = 0; r < call.of.ranks; ++r) {
    all.push_back(std::make_unique<RankMemory>(call, r));
    SLX_CUDA(cudaMemset(ranks.region(r), 0x5a, kRegionBytes));
    show_operands(call, *all.back(), ranks.region(r));
  }
  const auto for_each = [&](const auto& launch) {
    for (int r = 0; r < call.of.ranks; ++r) {
      PeerRegions regions = ranks.regions(r);
      regions.waits = waits;
      expect_no_fault(launch(regions, *all[r], ranks.stream(waits ? r : 0)));
    }
  };
  ranks.begin();
  if (!waits)
    for_each([](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
      return show_rows(regions, own.shown, stream);
    });
  for_each([&](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
    return find_peer_runs(regions, own.shown, own.peer_runs(call), own.offsets.data(), stream);
  });
  for (int input = 0; input < ShownRows::kMostInputs; ++input)
    for_each([&](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
      return fetch_peer_rows(regions, own.peer_runs(call), input,
                             (input == 0 ? own.y : own.second).data(), own.most, call.of.width,
                             stream);
    });
  for_each([&](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
    return fetch_peer_values(regions, own.peer_runs(call), own.values.data(), own.most, stream);
  });
  ranks.wait();
  for (const auto& own : all) {
    expect_received(call, *own);
    set_results(call, *own);
  }
  ranks.begin();
  for_each([&](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
    return return_peer_rows(regions, own.peer_runs(call), own.y.data(), own.most, call.of.width,
                            stream);
  });
  for_each([&](const PeerRegions& regions, const RankMemory& own, cudaStream_t stream) {
    return return_peer_values(regions, own.peer_runs(call), own.values.data(), own.most, stream);
  });
  for_each([](const PeerRegions& regions, const RankMemory&, cudaStream_t stream) {
    return queue_peer_barrier(regions, stream);
  });
  ranks.wait();
  for (const auto& own : all) {
    expect_returned(call, *own, ranks.region(own->rank));
    own->runs.get();  // its guards
  }
}

int run(CheckSize size) {
  std::vector<PeerRowsCase> cases = {
      {1, 4, 2, 8, {5, 0}}, {2, 8, 4, 72, {9, 1, 0, 30}}, {3, 10, 3, 24, {17, 5, 0}}};
  if (size != CheckSize::kTiny)
    cases.insert(cases.end(), {{2, 64, 4, 2048, {96, 1, 0, 300}},
                               {4, 384, 8, 512, {40, 200, 3}},
                               {8, 8, 2, 8, {1, 2, 1000}}});
  if (size == CheckSize::kAll)
    cases.insert(cases.end(), {{2, 16, 8, 7168, {33, 64}}, {4, 32, 32, 256, {500}}});
  for (const PeerRowsCase& c : cases)
    for (const bool waits : {false, true}) {
      Ranks ranks(c.ranks);
      for (int64_t number = 0; number < (size == CheckSize::kTiny ? 2 : 4); ++number) {
        current_case = "peer rows " + c.name() + (waits ? ", waiting" : "") + ", call " +
                       std::to_string(number);
        run_call(PeerCall(c, number), ranks, waits);
      }
    }
  return finish_checks("peer_rows_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
