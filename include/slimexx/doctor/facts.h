// Facts about each rank of a launch and its host. `slimexx doctor` gathers them, looks for faults
// (findings.h) and prints both (report.h).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "slimexx/dist/world.h"

namespace slimexx::doctor {

struct GpuFacts {
  std::string name, pci;        // "NVIDIA H200", "0000:19:00.0"
  int capability = 0;           // 90 is Hopper
  int driver = 0, runtime = 0;  // CUDA versions, 13000 is 13.0
  int numa_node = -1;           // the GPU's node on the host; -1: unknown
  int64_t total_bytes = 0, free_bytes = 0;
  int num_peers = 0, num_nvlink_peers = 0;  // other GPUs visible to this process
};

// In bytes per second unless noted; 0: not measured. All ranks measure host and GPU at the same
// time, as in a run; links are measured one after another.
struct Rates {
  double host_copy = 0, gpu_copy = 0;          // read and written
  double to_gpu = 0, from_gpu = 0;             // page-locked memory
  double write = 0;                            // to the folder, including fsync
  double to_next = 0, gpu_to_next = 0;         // one message to the next rank, until received
  double gather = 0, gpu_gather = 0;           // received by each rank in an all-gather
  double barrier_s = 0, gpu_all_reduce_s = 0;  // latency in seconds
};

struct RankFacts {
  int rank = 0;
  std::string host, build, mpi, nccl;
  int launched_ranks = 0;       // from the launcher's environment; 0: no launcher
  std::vector<int> cores;       // affinity of this process
  std::vector<int> numa_nodes;  // nodes of those cores
  int host_cores = 0, host_numa_nodes = 1;
  int num_threads = 1;
  int64_t memory_total_bytes = 0, memory_free_bytes = 0;  // host or container memory
  int64_t open_files_limit = 0;
  bool host_has_gpu_driver = false, build_has_cuda = false;
  int num_visible_gpus = 0;
  bool gpus_are_hidden = false;  // CUDA_VISIBLE_DEVICES names no GPU
  std::optional<GpuFacts> gpu;
  std::string gpu_fault;     // why the rank's GPU cannot be used
  std::string nccl_fault;    // why GPUs do not reach each other
  std::string folder_fault;  // why one of the folders cannot be written
  int64_t folder_free_bytes = 0;
  bool sees_folder_of_root = true;  // this rank sees rank 0's file in the folder
  Rates rates;
};

// Returns the facts of all ranks, by rank, on every rank. `folders` are the existing folders that a
// run would write to; speed and free space are measured in the first. Takes some seconds, some
// hundred MB of host memory and 1.5 GiB of the rank's GPU. Collective.
std::vector<RankFacts> gather_facts(dist::World& world, const std::string& build,
                                    const std::vector<std::string>& folders);

}  // namespace slimexx::doctor
