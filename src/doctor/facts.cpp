#include "slimexx/doctor/facts.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "doctor/facts_json.h"
#include "doctor/gpu_facts.h"
#include "doctor/host_facts.h"
#include "doctor/measures.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/dist/device_collective.h"
#include "slimexx/dist/host.h"

namespace slimexx::doctor {
namespace {

// A rank uses the GPU whose index is the rank's local rank, as in a run.
void read_gpu(dist::World& world, RankFacts& facts) {
  facts.build_has_cuda = build_has_cuda();
  facts.num_visible_gpus = tensor::count_cuda_devices();
  if (facts.num_visible_gpus == 0) return;
  const tensor::Device device{tensor::DeviceType::kCuda, world.local_rank()};
  try {
    if (device.index < facts.num_visible_gpus) facts.gpu = read_gpu_facts(device);
    tensor::select_device(device);
    measure_gpu(device, facts.rates);
  } catch (const Error& error) {
    facts.gpu_fault = error.message();
  }
}

void try_folder(const std::string& folder, int rank, RankFacts& facts) {
  const std::string path = join_path(folder, "doctor_try_" + std::to_string(rank));
  try {
    write_file_atomic(path, "x");
  } catch (const Error& error) {
    if (facts.folder_fault.empty()) facts.folder_fault = folder + ": " + error.message();
  }
  std::error_code ignored;
  std::filesystem::remove(path, ignored);
}

void check_folder(dist::World& world, const std::string& folder, RankFacts& facts) {
  const std::string mark = join_path(folder, "doctor_mark");
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string token = dist::broadcast_bytes(
      world.ranks(), facts.host + " " + std::to_string(getpid()) + " " + std::to_string(now), 0);
  try {
    if (world.rank() == 0) write_file_atomic(mark, token);
    facts.rates.write = measure_write(folder, world.rank());
  } catch (const Error& error) {
    facts.folder_fault = error.located_message();
  }
  struct statvfs disk {};
  if (statvfs(folder.c_str(), &disk) == 0)
    facts.folder_free_bytes =
        static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  world.ranks().barrier();
  try {
    facts.sees_folder_of_root = read_text_file(mark) == token;
  } catch (const Error&) {
    facts.sees_folder_of_root = false;
  }
  world.ranks().barrier();
  std::error_code ignored;
  if (world.rank() == 0) std::filesystem::remove(mark, ignored);
}

// Whether every rank has a GPU of its own. Otherwise GPU links are not measured, because NCCL waits
// forever for a missing rank.
bool all_have_gpus(dist::World& world, const RankFacts& facts) {
  const std::string own = facts.gpu && facts.gpu_fault.empty() ? facts.host + facts.gpu->pci : "";
  std::vector<std::string> all = dist::all_gather_bytes(world.ranks(), own);
  std::ranges::sort(all);
  return !all.front().empty() && std::ranges::adjacent_find(all) == all.end();
}

void measure_gpu_links(dist::World& world, RankFacts& facts) {
  if (world.size() == 1 || !all_have_gpus(world, facts)) return;
  try {
    const auto gpus = dist::make_device_collective(world.ranks(),
                                                   {tensor::DeviceType::kCuda, world.local_rank()});
    const LinkRates links = measure_links(*gpus);
    facts.rates.gpu_to_next = links.to_next;
    facts.rates.gpu_gather = links.gather;
    facts.rates.gpu_all_reduce_s = links.smallest_s;
  } catch (const Error& error) {
    facts.nccl_fault = error.message();
  }
}

}  // namespace

std::vector<RankFacts> gather_facts(dist::World& world, const std::string& build,
                                    const std::vector<std::string>& folders) {
  RankFacts facts;
  facts.rank = world.rank();
  facts.build = build;
  facts.mpi = dist::mpi_version();
  facts.nccl = dist::device_collective_version();
  read_host_facts(facts);
  world.ranks().barrier();
  facts.rates.host_copy = measure_host_copy();
  read_gpu(world, facts);
  check_folder(world, folders[0], facts);
  for (size_t i = 1; i < folders.size(); ++i) try_folder(folders[i], facts.rank, facts);
  const LinkRates links = measure_links(world.ranks());
  facts.rates.to_next = links.to_next;
  facts.rates.gather = links.gather;
  facts.rates.barrier_s = links.smallest_s;
  measure_gpu_links(world, facts);
  std::vector<RankFacts> all;
  for (const std::string& bytes : dist::all_gather_bytes(world.ranks(), pack_facts(facts)))
    all.push_back(unpack_facts(bytes));
  return all;
}

}  // namespace slimexx::doctor
