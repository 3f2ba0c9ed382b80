// Ranks that exchange device memory, one device each. Start it with mpirun. Modes:
//   nccl_ranks: run all checks; exits with status 77 if there are fewer devices than ranks.
//   SLX_CHECK_PATHS=1 nccl_ranks paths: also compare every path, and check a disagreement.
//   nccl_ranks waiting: rank 1 fails while the others wait for it in NCCL.
//   nccl_ranks queued: rank 1 fails with an exchange queued that the others never join.
// The last two must fail within seconds; a hang is a bug.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "dist/collective_contract.h"
#include "dist/local_size.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/peer_regions.h"
#include "slimexx/dist/world.h"

namespace slimexx::dist {
namespace {

constexpr int kSkipped = 77;

// Every rank fills the first half of its own region, and its part of the second half of every
// region. After a barrier it reads the first half of every region and the second half of its own.
// Returns a description of the fault.
std::string check_peer_memory(Collective& ranks) {
  constexpr int64_t kNumbers = 1 << 18, kBytes = kNumbers * 4;
  const tensor::Buffer region(ranks.device(), 2 * kBytes, "peer test");
  const auto memory =
      PeerMemory::make(ranks, region.view(tensor::DType::kU8, {region.size_bytes()}));
  if (memory == nullptr) return "no peer memory between devices of one host";
  if (!memory->kernels_wait()) return "kernels do not wait";
  const kernels::PeerRegions peers = regions_of(*memory);
  const tensor::Stream stream = tensor::compute_stream(ranks.device());
  const auto view = [&](int rank, int64_t at, int64_t n) {
    return tensor::Tensor(peers.region[rank] + at, tensor::DType::kI32, ranks.device(), {n});
  };
  const auto own_part = split_range(kNumbers, ranks.size())[static_cast<size_t>(ranks.rank())];
  const auto meet = [&] {
    return kernels::queue_peer_barrier(peers, static_cast<cudaStream_t>(stream.handle));
  };
  for (int round = 1; round <= 50; ++round) {
    const auto number = [&](int rank) { return round * 100 + rank; };
    const std::vector<int32_t> own(kNumbers, number(ranks.rank()));
    tensor::upload(stream, view(ranks.rank(), 0, kNumbers), own.data());
    for (int rank = 0; rank < ranks.size(); ++rank)
      tensor::upload(stream, view(rank, kBytes + own_part.begin * 4, own_part.size()), own.data());
    if (const char* fault = meet()) return fault;
    std::vector<int32_t> seen(kNumbers);
    for (int rank = 0; rank < ranks.size(); ++rank) {
      tensor::download(stream, seen.data(), view(rank, 0, kNumbers));
      for (const int32_t value : seen)
        if (value != number(rank)) return "round " + std::to_string(round) + ": another's region";
    }
    tensor::download(stream, seen.data(), view(ranks.rank(), kBytes, kNumbers));
    for (int rank = 0; rank < ranks.size(); ++rank) {
      const Range part = split_range(kNumbers, ranks.size())[static_cast<size_t>(rank)];
      for (int64_t i = part.begin; i < part.end; ++i)
        if (seen[static_cast<size_t>(i)] != number(rank))
          return "round " + std::to_string(round) + ": what others wrote here";
    }
    if (const char* fault = meet()) return fault;
  }
  tensor::synchronize(stream);
  // Rank 0 enters a barrier alone, until cancel() ends its wait.
  if (ranks.rank() == 0) {
    if (const char* fault = meet()) return fault;
    memory->cancel();
    tensor::synchronize(stream);
  }
  ranks.barrier();
  return "";
}

// Sums and gathers of tensors in a region, which kernels compute, must equal those computed by
// messages bit for bit. Kernels need no scratch, so they get none.
std::string check_peer_exchange(Collective& ranks) {
  using tensor::DType;
  tensor::Arena region(ranks.device(), int64_t{1} << 30, "peer test"),
      others(ranks.device(), int64_t{1} << 30, "peer test"), none(ranks.device(), 0, "scratch");
  const auto memory = PeerMemory::make(ranks, region.memory());
  if (memory == nullptr) return "no peer memory between devices of one host";
  const tensor::Stream stream = tensor::compute_stream(ranks.device());
  const auto own = static_cast<size_t>(ranks.rank());
  uint64_t seed = 1;
  for (const int64_t rows : {1, 7, 30, 31, 256, 8191})
    for (const int64_t width : {8, 51, 4096})
      for (const DType type : {DType::kF32, DType::kBF16, DType::kF64}) {
        const std::vector<Range> ranges = split_range(rows, ranks.size(), 1);
        const std::string what = std::to_string(rows) + " x " + std::to_string(width);
        const int64_t n = rows * width;
        PhiloxStream random(seed++, static_cast<uint64_t>(ranks.rank()));
        std::vector<double> values(static_cast<size_t>(n));
        for (double& value : values) value = random.next_normal();
        std::vector<char> bytes(values.size() * static_cast<size_t>(tensor::dtype_bytes(type)));
        tensor::convert_elements(DType::kF64, values.data(), type, bytes.data(), n);
        std::vector<char> results[2][4];
        for (const bool by_peers : {false, true}) {
          tensor::Arena& arena = by_peers ? region : others;
          tensor::Arena& scratch = by_peers ? none : others;
          const tensor::ArenaScope scope(arena), share_scope(others);
          // The start of the tensor differs by rank.
          arena.allocate(DType::kU8, {by_peers ? 4096 * ranks.rank() : 0});
          const tensor::Tensor data = arena.allocate(type, {rows, width});
          const tensor::Tensor share = others.allocate(type, {ranges[own].size(), width});
          const auto read = [&](const tensor::Tensor& t, std::vector<char>& result) {
            result.resize(static_cast<size_t>(t.size_bytes()));
            tensor::download(stream, result.data(), t);
          };
          tensor::upload(stream, data, bytes.data());
          ranks.sum_to_shares(stream, scratch, share, data, ranges);
          read(share, results[by_peers][0]);
          ranks.gather_shares(stream, data, share, ranges);
          read(data, results[by_peers][1]);
          tensor::upload(stream, data, bytes.data());
          ranks.all_reduce_sum(stream, scratch, data, SumOrder::kRank);
          read(data, results[by_peers][2]);
          tensor::upload(stream, data, bytes.data());
          const tensor::Tensor sum = others.allocate(type, {rows, width});
          ranks.sum_to_all(stream, scratch, sum, data);
          read(sum, results[by_peers][3]);
        }
        for (int i = 0; i < 4; ++i)
          if (results[0][i] != results[1][i])
            return "peer exchange " + std::to_string(i) + ": " + what;
      }
  return "";
}

// One rank's tensor is outside the region. Without the check, all ranks would wait forever.
std::string check_disagreement(Collective& ranks) {
  tensor::Arena region(ranks.device(), 1 << 20, "peer test"),
      others(ranks.device(), 1 << 20, "peer test");
  const auto memory = PeerMemory::make(ranks, region.memory());
  if (memory == nullptr) return "no peer memory between devices of one host";
  const tensor::Stream stream = tensor::compute_stream(ranks.device());
  const bool is_last = ranks.rank() + 1 == ranks.size();
  const tensor::Tensor data = (is_last ? others : region).allocate(tensor::DType::kF32, {64});
  try {
    ranks.all_reduce_sum(stream, others, data, SumOrder::kRank);
  } catch (const Error& error) {
    const std::string last = "rank " + std::to_string(ranks.size() - 1) + " is at call ";
    const bool names = error.message().find("with 256 bytes by kernels") != std::string::npos &&
                       error.message().find(last) != std::string::npos &&
                       error.message().find("with 256 bytes by messages") != std::string::npos;
    return names ? "" : error.message();
  }
  return "ranks that disagree about a path are not told";
}

void check(World& world, tensor::Device device, bool paths) {
  const auto all = make_device_collective(world.ranks(), device);
  std::string fault = check_collective(*all, device);
  if (fault.empty()) fault = check_peer_memory(*all);
  if (fault.empty()) fault = check_peer_exchange(*all);
  if (fault.empty() && paths) fault = check_disagreement(*all);
  if (!fault.empty()) throw Error(ErrorCode::kCheck, fault);
  if (world.rank() == 0)
    std::printf("%s, %d ranks: ok\n", device_collective_version().c_str(), world.size());
}

void fail_in_flight(World& world, tensor::Device device, bool waiting) {
  const tensor::Buffer buffer(device, 64 << 20, "exchange test");
  const tensor::Tensor data = buffer.view(tensor::DType::kF32, {16 << 20});
  const tensor::Stream stream = tensor::compute_stream(device);
  tensor::Arena none(device, 0, "scratch");
  const auto all = make_device_collective(world.ranks(), device);
  const auto ranges = split_range(16 << 20, world.size());
  all->reduce_scatter_sum(stream, none, data, ranges, SumOrder::kAny);
  if (waiting != (world.rank() == 1))
    all->reduce_scatter_sum(stream, none, data, ranges, SumOrder::kAny);
  if (world.rank() == 1) throw Error(ErrorCode::kRun, "rank 1 fails on purpose");
  if (waiting) tensor::synchronize(stream);
  world.ranks().barrier();
  std::printf("rank %d came through\n", world.rank());
}

int run(World& world, const std::string& what) {
  if (tensor::count_cuda_devices() < local_size(world)) return kSkipped;
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  if (what.empty() || what == "paths") {
    check(world, device, what == "paths");
  } else {
    fail_in_flight(world, device, what == "waiting");
  }
  return 0;
}

}  // namespace
}  // namespace slimexx::dist

int main(int argc, char** argv) {
  slimexx::dist::World world;
  const auto start = std::chrono::steady_clock::now();
  try {
    return slimexx::dist::run(world, argc > 1 ? argv[1] : "");
  } catch (const slimexx::Error& e) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    std::fprintf(stderr, "rank %d after %.2f s: %s\n", world.rank(), seconds.count(), e.what());
    world.abort(slimexx::exit_status(e.code()));
    return slimexx::exit_status(e.code());
  }
}
