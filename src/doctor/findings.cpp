#include "slimexx/doctor/findings.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "slimexx/base/strings.h"

namespace slimexx::doctor {
namespace {

using Facts = std::span<const RankFacts>;
using Findings = std::vector<Finding>;

constexpr double kSlowShare = 0.8;   // share of the median
constexpr double kSlowDisk = 100e6;  // bytes per second
constexpr int64_t kGib = int64_t{1} << 30;
constexpr int64_t kLeastHostMemory = 2 * kGib;   // per rank
constexpr int64_t kForeignGpuMemory = 2 * kGib;  // more than a driver and its contexts use
constexpr int64_t kLeastOpenFiles = 1024;
constexpr size_t kMostNamed = 4;

// "rank 3 (node7)", "ranks 0, 1, 2, 3 and 4 more (node7)"; with the host if all are on one host.
std::string name_ranks(Facts all, const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  std::set<std::string> hosts;
  for (size_t i = 0; i < ranks.size(); ++i) {
    hosts.insert(all[static_cast<size_t>(ranks[i])].host);
    if (i < kMostNamed) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  }
  if (ranks.size() > kMostNamed) text += fmt::format(" and {} more", ranks.size() - kMostNamed);
  return hosts.size() == 1 ? text + " (" + *hosts.begin() + ")" : text;
}

using Condition = std::function<bool(const RankFacts&)>;

// Adds one finding about all ranks that meet the condition, with the `text` of the first such rank.
void add_where(Findings& findings, Facts all, Severity severity, const Condition& is_met,
               const std::function<std::string(const RankFacts&)>& text,
               const std::string& remedy) {
  std::vector<int> ranks;
  for (const RankFacts& r : all)
    if (is_met(r)) ranks.push_back(r.rank);
  if (ranks.empty()) return;
  findings.push_back(
      {severity, name_ranks(all, ranks), text(all[static_cast<size_t>(ranks[0])]), remedy});
}

std::map<std::string, std::vector<const RankFacts*>> by_host(Facts all) {
  std::map<std::string, std::vector<const RankFacts*>> hosts;
  for (const RankFacts& r : all) hosts[r.host].push_back(&r);
  return hosts;
}

void find_launch_faults(Facts all, Findings& findings) {
  add_where(
      findings, all, Severity::kFault,
      [&](const RankFacts& r) { return r.launched_ranks > std::ssize(all); },
      [&](const RankFacts& r) {
        return fmt::format("the launcher started {} ranks, but only {} found each other",
                           r.launched_ranks, all.size());
      },
      "use the mpirun or srun of the MPI that the program was built with" +
          (all[0].mpi.empty() ? std::string() : ": " + all[0].mpi));
  add_where(
      findings, all, Severity::kFault, [&](const RankFacts& r) { return r.build != all[0].build; },
      [&](const RankFacts& r) {
        return fmt::format("runs build {}, but rank 0 runs {}", r.build, all[0].build);
      },
      "install the same build on all hosts: results of different builds are not bit-identical");
}

void find_gpu_faults(Facts all, Findings& findings) {
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) { return r.host_has_gpu_driver && !r.build_has_cuda; },
      [](const RankFacts&) { return "the host has GPUs, but this build has no CUDA"; },
      "build with -DSLX_WITH_CUDA=ON (cmake --preset cuda)");
  const auto finds_no_gpu = [](const RankFacts& r) {
    return r.build_has_cuda && r.host_has_gpu_driver && r.num_visible_gpus == 0;
  };
  add_where(
      findings, all, Severity::kAdvice,
      [&](const RankFacts& r) { return finds_no_gpu(r) && r.gpus_are_hidden; },
      [](const RankFacts&) { return "CUDA_VISIBLE_DEVICES hides every GPU of the host"; },
      "unset it, or list the GPUs that the run may use: without a GPU it runs on the CPU");
  add_where(
      findings, all, Severity::kFault,
      [&](const RankFacts& r) { return finds_no_gpu(r) && !r.gpus_are_hidden; },
      [](const RankFacts&) { return "the host has a GPU driver, but no GPU can be used"; },
      "check nvidia-smi and CUDA_VISIBLE_DEVICES; the driver may be older than the CUDA of this "
      "build");
  add_where(
      findings, all, Severity::kFault, [](const RankFacts& r) { return !r.gpu_fault.empty(); },
      [](const RankFacts& r) { return r.gpu_fault; },
      "start one rank per GPU, on Hopper GPUs, or use --device cpu");
  std::map<std::string, std::vector<int>> by_gpu;
  for (const RankFacts& r : all)
    if (r.gpu) by_gpu[r.host + " " + r.gpu->pci].push_back(r.rank);
  for (const auto& [name, ranks] : by_gpu) {
    if (ranks.size() > 1)
      findings.push_back({Severity::kFault, name_ranks(all, ranks),
                          "share the GPU " + name.substr(name.rfind(' ') + 1),
                          "start at most one rank per GPU, and let every rank see all GPUs of its "
                          "host (CUDA_VISIBLE_DEVICES)"});
  }
  add_where(
      findings, all, Severity::kFault, [](const RankFacts& r) { return !r.nccl_fault.empty(); },
      [](const RankFacts& r) { return "GPUs cannot communicate: " + r.nccl_fault; },
      "run again with NCCL_DEBUG=INFO; containers need shared memory and all devices");
  add_where(
      findings, all, Severity::kFault,
      [&](const RankFacts& r) { return r.gpu && all.size() > 1 && r.nccl.empty(); },
      [](const RankFacts&) { return "this build has no NCCL: several ranks cannot run on GPUs"; },
      "install NCCL with its headers and build again");
}

void find_gpu_advice(Facts all, Findings& findings) {
  for (const auto& [host, ranks] : by_host(all)) {
    const int num_gpus = ranks[0]->num_visible_gpus;
    if (num_gpus > std::ssize(ranks))
      findings.push_back(
          {Severity::kAdvice, host,
           fmt::format("{} of {} GPUs have no rank", num_gpus - std::ssize(ranks), num_gpus),
           fmt::format("start {} ranks there", num_gpus)});
  }
  add_where(
      findings, all, Severity::kAdvice,
      [&](const RankFacts& r) { return r.gpu && all[0].gpu && r.gpu->name != all[0].gpu->name; },
      [&](const RankFacts& r) {
        return fmt::format("has {}, but rank 0 has {}", r.gpu->name, all[0].gpu->name);
      },
      "the slowest GPU limits the speed, and the smallest one the model size");
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) {
        return r.gpu && r.gpu->total_bytes - r.gpu->free_bytes > kForeignGpuMemory;
      },
      [](const RankFacts& r) {
        return fmt::format(
            "{} of the GPU's {} are in use",
            format_bytes(static_cast<double>(r.gpu->total_bytes - r.gpu->free_bytes)),
            format_bytes(static_cast<double>(r.gpu->total_bytes)));
      },
      "stop the other process (nvidia-smi shows it)");
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) { return r.gpu && r.gpu->num_nvlink_peers < r.gpu->num_peers; },
      [](const RankFacts& r) {
        return fmt::format("NVLink reaches {} of {} other GPUs", r.gpu->num_nvlink_peers,
                           r.gpu->num_peers);
      },
      "keep tensor and expert parallelism within GPUs connected by NVLink");
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) {
        return r.gpu && r.gpu->numa_node >= 0 && r.host_numa_nodes > 1 &&
               std::ranges::count(r.numa_nodes, r.gpu->numa_node) == 0;
      },
      [](const RankFacts& r) {
        return fmt::format("its cores are not on NUMA node {} of its GPU", r.gpu->numa_node);
      },
      "bind ranks to the node of their GPU: mpirun --map-by ppr:N:numa, srun --gpu-bind=closest");
}

void find_core_advice(Facts all, Findings& findings) {
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) { return r.cores.size() == 1 && r.host_cores > 1; },
      [](const RankFacts& r) {
        return fmt::format("may use only 1 of the host's {} cores", r.host_cores);
      },
      "mpirun binds ranks to cores by default: add --bind-to none, or --map-by slot:PE=N; with "
      "Slurm --cpus-per-task=N");
  for (const auto& [host, ranks] : by_host(all)) {
    std::set<int> cores;
    int64_t num_threads = 0;
    std::vector<int> numbers;
    for (const RankFacts* r : ranks) {
      cores.insert(r->cores.begin(), r->cores.end());
      num_threads += r->num_threads;
      numbers.push_back(r->rank);
    }
    if (num_threads > std::ssize(cores))
      findings.push_back({Severity::kAdvice, name_ranks(all, numbers),
                          fmt::format("{} threads share {} cores", num_threads, cores.size()),
                          "start fewer ranks there, or give the job more cores"});
  }
}

void find_memory_advice(Facts all, Findings& findings) {
  for (const auto& [host, ranks] : by_host(all)) {
    const int64_t free_bytes = ranks[0]->memory_free_bytes;
    if (free_bytes < std::ssize(ranks) * kLeastHostMemory)
      findings.push_back({Severity::kAdvice, host,
                          fmt::format("only {} of memory are free for {} rank{}",
                                      format_bytes(static_cast<double>(free_bytes)), ranks.size(),
                                      ranks.size() == 1 ? "" : "s"),
                          "stop other programs, or give the container more memory"});
  }
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) { return r.open_files_limit < kLeastOpenFiles; },
      [](const RankFacts& r) { return fmt::format("{} open files allowed", r.open_files_limit); },
      "raise the limit: ulimit -n 65536");
}

void find_folder_problems(Facts all, const Needs& needs, Findings& findings) {
  add_where(
      findings, all, Severity::kFault, [](const RankFacts& r) { return !r.folder_fault.empty(); },
      [](const RankFacts& r) { return r.folder_fault; },
      "choose a folder that all ranks can write to (observe.run_dir, checkpoint.save)");
  add_where(
      findings, all, Severity::kFault,
      [](const RankFacts& r) { return r.folder_fault.empty() && !r.sees_folder_of_root; },
      [](const RankFacts&) { return "does not see files that rank 0 writes to the folder"; },
      "choose a folder on a file system that all hosts share: every rank writes its shard of a "
      "checkpoint");
  const RankFacts& root = all[0];
  if (root.folder_fault.empty() &&
      needs.checkpoint_bytes > static_cast<double>(root.folder_free_bytes))
    findings.push_back({Severity::kFault, name_ranks(all, {0}),
                        fmt::format("the folder's disk has {} free, but checkpoints take about {}",
                                    format_bytes(static_cast<double>(root.folder_free_bytes)),
                                    format_bytes(needs.checkpoint_bytes)),
                        "choose another folder, or lower checkpoint.keep_last"});
  add_where(
      findings, all, Severity::kAdvice,
      [](const RankFacts& r) { return r.folder_fault.empty() && r.rates.write < kSlowDisk; },
      [](const RankFacts& r) {
        return fmt::format("writes {:.0f} MB/s to the folder", r.rates.write / 1e6);
      },
      "checkpoints will take long: choose a faster disk");
}

// Finds ranks with a rate below kSlowShare of the median.
void find_slow(Facts all, double Rates::*rate, const std::string& what, Findings& findings) {
  std::vector<double> rates;
  for (const RankFacts& r : all)
    if (r.rates.*rate > 0) rates.push_back(r.rates.*rate);
  if (rates.size() < 3) return;  // two values cannot show which one is unusual
  std::ranges::nth_element(rates, rates.begin() + std::ssize(rates) / 2);
  const double median = rates[rates.size() / 2];
  add_where(
      findings, all, Severity::kAdvice,
      [&](const RankFacts& r) { return r.rates.*rate > 0 && r.rates.*rate < kSlowShare * median; },
      [&](const RankFacts& r) {
        return fmt::format("{} at {:.1f} GB/s, while the median is {:.1f}", what,
                           r.rates.*rate / 1e9, median / 1e9);
      },
      "check which other programs run on that host; the slowest rank slows all others");
}

}  // namespace

std::vector<Finding> find_problems(std::span<const RankFacts> ranks, const Needs& needs) {
  Findings findings;
  find_launch_faults(ranks, findings);
  find_gpu_faults(ranks, findings);
  find_folder_problems(ranks, needs, findings);
  find_gpu_advice(ranks, findings);
  find_core_advice(ranks, findings);
  find_memory_advice(ranks, findings);
  find_slow(ranks, &Rates::host_copy, "copies memory", findings);
  find_slow(ranks, &Rates::gpu_copy, "copies GPU memory", findings);
  find_slow(ranks, &Rates::to_gpu, "copies to the GPU", findings);
  find_slow(ranks, &Rates::from_gpu, "copies from the GPU", findings);
  find_slow(ranks, &Rates::to_next, "sends to the next rank", findings);
  find_slow(ranks, &Rates::gpu_to_next, "sends from its GPU to the GPU of the next rank", findings);
  std::ranges::stable_sort(findings, {}, &Finding::severity);
  return findings;
}

}  // namespace slimexx::doctor
