// Ranks that exchange device memory, one device each; started by mpirun.
//   nccl_ranks          checks; status 77 where there are fewer devices than ranks
//   nccl_ranks waiting  rank 1 fails while the others wait in NCCL for it
//   nccl_ranks queued   rank 1 fails with an exchange queued that the others never join
// The last two end with a failure within seconds, or hang.
#include <chrono>
#include <cstdio>
#include <string>

#include "dist/collective_contract.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/world.h"

namespace slimexx::dist {
namespace {

constexpr int kSkipped = 77;

void check(World& world, tensor::Device device) {
  const auto all = make_device_collective(world.ranks(), device);
  const std::string fault = check_collective(*all, device);
  if (!fault.empty()) throw Error(ErrorCode::kCheck, fault);
  if (world.rank() == 0)
    std::printf("%s, %d ranks: ok\n", device_collective_version().c_str(), world.size());
}

void fail_under_way(World& world, tensor::Device device, bool waiting) {
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
  if (tensor::count_cuda_devices() < world.local_size()) return kSkipped;
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  tensor::select_device(device);
  if (what.empty()) {
    check(world, device);
  } else {
    fail_under_way(world, device, what == "waiting");
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
