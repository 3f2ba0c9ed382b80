// Dispatch and combine traffic of expert parallelism in a training layer, against NCCL's all-to-all
// of the same number of rows. One device per rank:
//   mpirun -np 4 expert_exchange_bench
// Tokens are routed evenly: every expert gets the same number of rows from each rank, so any two
// ranks exchange the same number. GB/s: routed rows that leave a rank, divided by the time. Each
// time is the mean of several calls in a row, as in consecutive layers.
//
// NCCL's all-to-all is a group of sends and receives; a rank's own rows are copied concurrently.
// NCCL takes rows sorted by rank and leaves them in that order. Our exchange does more: a dispatch
// takes tokens and produces rows sorted by expert, and a return sends the results to the source
// ranks, sorted by expert there too. The kernels read a token once for all its experts on a rank,
// so fewer bytes leave a rank than the rate counts. Each line includes the barriers before and
// after it; in a layer a dispatch and its return share them ("both"). The weighted sum over a
// token's experts is not included, since it needs one rank only.
#include <fmt/format.h>

#include <bit>
#include <functional>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "bench/dist/rank_bench.h"
#include "model/blocks/expert_dispatch.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/peer_memory.h"
#include "slimexx/kernels/limits.h"
#include "slimexx/model/expert_placement.h"
#include "slimexx/ops/peer_rows.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Tensor;

constexpr int kCalls = 10;

struct Case {
  int64_t tokens, width, top_k, experts;
  int64_t num_rows() const { return tokens * top_k; }
  double row_bytes() const { return 2.0 * static_cast<double>(width); }
  model::ExpertPlacement placement(int ranks) const { return {experts, experts, ranks}; }
};

// [tokens, k]: shuffles all experts, deals k of them to each token until none are left, and
// repeats.
std::vector<int32_t> deal_experts(const Case& c, int rank) {
  PhiloxStream random(static_cast<uint64_t>(rank), 11);
  std::vector<int32_t> deck(static_cast<size_t>(c.experts)), ids;
  std::iota(deck.begin(), deck.end(), 0);
  for (int64_t token = 0; token < c.tokens; token += c.experts / c.top_k) {
    for (size_t i = deck.size(); i > 1; --i) std::swap(deck[i - 1], deck[random.next_below(i)]);
    ids.insert(ids.end(), deck.begin(), deck.end());
  }
  return ids;
}

// Number of transfers if each token is sent once to every other rank that has any of its experts.
int64_t count_crossings(const Case& c, const std::vector<int32_t>& ids, int ranks, int own) {
  int64_t count = 0;
  for (size_t first = 0; first < ids.size(); first += static_cast<size_t>(c.top_k)) {
    uint64_t there = 0;
    for (size_t i = first; i < first + static_cast<size_t>(c.top_k); ++i)
      there |= uint64_t{1} << (ids[i] / (c.experts / ranks));
    count += std::popcount(there & ~(uint64_t{1} << own));
  }
  return count;
}

// This rank has R routed rows and receives R. All tensors are in memory that peers can access.
struct Rows {
  Tensor ids, x;  // [T,k], [T,H]
  ops::RoutedRows routed;
  Tensor received;  // [R,H], and the rows that expert products may read after them
  Tensor returned;  // [R,H]
};

Rows make_rows(const ops::Context& ctx, const Case& c, const std::vector<int32_t>& ids) {
  const int64_t num_rows = c.num_rows();
  const auto integers = [&](int64_t n) { return ctx.arena.allocate(DType::kI32, {n}); };
  const auto wide = [&](int64_t n) { return ctx.arena.allocate(DType::kBF16, {n, c.width}); };
  const Rows rows{.ids = ctx.arena.allocate(DType::kI32, {c.tokens, c.top_k}),
                  .x = wide(c.tokens),
                  .routed = {.offsets = integers(c.experts + 1),
                             .choices = integers(num_rows),
                             .tokens = integers(num_rows),
                             .rows = ctx.arena.allocate(DType::kI32, {c.tokens, c.top_k})},
                  .received = wide(num_rows + kernels::kReadBehindExperts),
                  .returned = wide(num_rows)};
  tensor::upload(ctx.stream, rows.ids, ids.data());
  ops::sort_by_expert(ctx, rows.routed, rows.ids);
  return rows;
}

struct Lines {
  const Bench& bench;
  const Case& of;
  double nccl_ms = 0;  // NCCL's time for one direction

  // Returns the time per call. `ways`: how often a call moves all rows. `crossing`: bytes that
  // leave this rank, printed in addition if above 0.
  double report(const char* what, int ways, const std::function<void()>& call,
                double crossing = 0) const {
    const auto run = [&] {
      for (int i = 0; i < kCalls; ++i) call();
    };
    const double ms = bench.time_ms(run) / kCalls;
    const double bytes = ways * static_cast<double>(of.num_rows()) * of.row_bytes();
    const std::string note = crossing > 0 ? fmt::format("; crossing: {:.1f} MB, {:.1f} GB/s",
                                                        crossing * 1e-6, crossing / ms * 1e-6)
                                          : "";
    if (bench.world.rank() == 0)
      fmt::print("  {:<22} {:8.3f} ms {:7.1f} GB/s{}{}\n", what, ms,
                 bench.gigabytes_a_second(bytes, ms), share_of_nccl(ms, ways * nccl_ms), note);
    return ms;
  }
};

double report_nccl(const Lines& lines, const ops::Context& ctx, const Rows& rows) {
  Collective& ranks = ctx.groups.ep;
  const int64_t num_rows = lines.of.num_rows(), each = num_rows / ranks.size();
  const int64_t leave = num_rows - each;
  std::vector<int64_t> counts(static_cast<size_t>(ranks.size()), each);
  counts[static_cast<size_t>(ranks.rank())] = 0;
  return lines.report("NCCL's all-to-all", 1, [&] {
    ranks.all_to_all(ctx.stream, rows.received.rows(0, leave), rows.returned.rows(0, leave), counts,
                     counts);
    tensor::copy_bytes(tensor::side_stream(ctx.device()), rows.received.rows(leave, num_rows),
                       rows.returned.rows(leave, num_rows));
  });
}

void report_kernels(const Lines& lines, const ops::Context& ctx, const Rows& rows,
                    int64_t crossings) {
  const tensor::ArenaScope scope(ctx.arena);
  const Range held = lines.of.placement(ctx.groups.ep.size()).held_by(ctx.groups.ep.rank());
  const ops::PeerRuns runs = ops::allocate_peer_runs(ctx, held.begin, held.size());
  const Tensor offsets = ctx.arena.allocate(DType::kI32, {held.size() + 1});
  const auto exchange = [&](bool fetches, bool returns) {
    ops::show_rows(ctx, runs, offsets,
                   {.routed = rows.routed, .x = rows.x, .returned = rows.returned});
    if (fetches) ops::fetch_peer_rows(ctx, runs, rows.received);
    if (returns) ops::return_peer_rows(ctx, runs, rows.received);
    ops::await_peer_rows(ctx);
  };
  exchange(true, true);
  std::vector<int32_t> ends(static_cast<size_t>(offsets.dim(0)));
  tensor::download(ctx.stream, ends.data(), offsets);
  SLX_CHECK_EQ(int64_t{ends.back()}, lines.of.num_rows());  // as many bytes as NCCL

  lines.report(
      "dispatch by kernels", 1, [&] { exchange(true, false); },
      static_cast<double>(crossings) * lines.of.row_bytes());
  lines.report("return by kernels", 1, [&] { exchange(false, true); });
  lines.report("both by kernels", 2, [&] { exchange(true, true); });
}

// Training uses this exchange if ranks cannot access each other's memory.
void report_messages(const Lines& lines, const ops::Context& ctx, const Rows& rows) {
  const tensor::ArenaScope scope(ctx.arena);
  const model::ExpertDispatch dispatch =
      model::plan_dispatch(ctx, lines.of.placement(ctx.groups.ep.size()), rows.routed, rows.ids);
  SLX_CHECK_EQ(dispatch.num_received(), lines.of.num_rows());
  const Tensor received = rows.received.rows(0, dispatch.num_received());
  lines.report("dispatch by messages", 1,
               [&] { model::dispatch_rows(ctx, dispatch, received, rows.x, rows.routed); });
  lines.report("return by messages", 1,
               [&] { model::return_rows(ctx, dispatch, rows.returned, received); });
}

void report_case(const Bench& bench, const ops::Context& ctx, const Case& c) {
  const tensor::ArenaScope scope(ctx.arena);
  const int size = ctx.groups.ep.size(), own = ctx.groups.ep.rank();
  const std::vector<int32_t> ids = deal_experts(c, own);
  const Rows rows = make_rows(ctx, c, ids);
  const double megabytes = static_cast<double>(c.num_rows()) * c.row_bytes() * 1e-6;
  if (own == 0)
    fmt::print("{} tokens x {}, top {} of {}: {:.1f} MB of routed rows, {:.1f} leave a rank\n",
               c.tokens, c.width, c.top_k, c.experts, megabytes, megabytes * (size - 1) / size);
  Lines lines{bench, c};
  lines.nccl_ms = report_nccl(lines, ctx, rows);
  if (ctx.groups.ep_memory != nullptr)
    report_kernels(lines, ctx, rows, count_crossings(c, ids, size, own));
  report_messages(lines, ctx, rows);
}

void run(World& world) {
  constexpr int64_t kTopK[] = {8, 4}, kExperts[] = {128, 64};
  if (world.size() < 2 || kExperts[1] % world.size() != 0)
    throw Error(ErrorCode::kUsage,
                fmt::format("{} ranks: the number must be at least 2 and divide 64", world.size()),
                "mpirun -np 4 expert_exchange_bench");
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  const Bench bench{world, device};
  const auto exchange = make_device_collective(world.ranks(), device);
  // Enough for the largest case: routed rows on both sides, and two copies of them as packed
  // messages.
  tensor::Arena arena(device, int64_t{5} << 30, "rows");
  const auto memory = PeerMemory::make(*exchange, arena.memory());
  Collective one;
  const Groups groups{one, one, one, one, one, *exchange, one, one, one, one, memory.get()};
  const ops::Context ctx = ops::compute_context(arena, groups);
  if (world.rank() == 0) fmt::print("{}, {} ranks\n", device_collective_version(), world.size());
  for (const int64_t width : {2048, 4096})
    for (const int64_t tokens : {8192, 16384})
      for (int i = 0; i < 2; ++i) report_case(bench, ctx, {tokens, width, kTopK[i], kExperts[i]});
}

}  // namespace
}  // namespace slimexx::dist

int main() {
  slimexx::dist::World world;
  try {
    slimexx::dist::run(world);
    return 0;
  } catch (const slimexx::Error& e) {
    fmt::print(stderr, "rank {}: {}\n", world.rank(), e.what());
    world.abort(slimexx::exit_status(e.code()));
    return slimexx::exit_status(e.code());
  }
}
