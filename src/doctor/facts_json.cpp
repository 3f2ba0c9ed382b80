#include "doctor/facts_json.h"

#include <nlohmann/json.hpp>

namespace slimexx::doctor {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuFacts, name, pci, capability, driver, runtime, numa_node,
                                   total_bytes, free_bytes, num_peers, num_nvlink_peers)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Rates, host_copy, gpu_copy, to_gpu, from_gpu, write, to_next,
                                   gpu_to_next, gather, gpu_gather, barrier_s, gpu_all_reduce_s)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RankFacts, rank, host, build, mpi, nccl, launched_ranks, cores,
                                   numa_nodes, host_cores, host_numa_nodes, num_threads,
                                   memory_total_bytes, memory_free_bytes, open_files_limit,
                                   host_has_gpu_driver, build_has_cuda, num_visible_gpus,
                                   gpus_are_hidden, gpu_fault, nccl_fault, folder_fault,
                                   folder_free_bytes, sees_folder_of_root, rates)

// Packs the optional GPU separately, because the JSON library's macro does not support optionals.
std::string pack_facts(const RankFacts& facts) {
  nlohmann::json json = facts;
  if (facts.gpu) json["gpu"] = *facts.gpu;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

RankFacts unpack_facts(const std::string& bytes) {
  const auto json = nlohmann::json::parse(bytes);
  auto facts = json.get<RankFacts>();
  if (json.contains("gpu")) facts.gpu = json["gpu"].get<GpuFacts>();
  return facts;
}

}  // namespace slimexx::doctor
