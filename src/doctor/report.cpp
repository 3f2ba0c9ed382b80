#include "slimexx/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <vector>

#include "slimexx/base/strings.h"
#include "slimexx/observe/console.h"

namespace slimexx::doctor {
namespace {

using Facts = std::span<const RankFacts>;
using HostRanks = std::vector<const RankFacts*>;

constexpr size_t kMostHosts = 16;

// "21.3", or "18.0-21.3" if ranks differ by more than rounding; empty if not measured.
std::string gigabytes(const HostRanks& ranks, double Rates::*rate) {
  double least = 0, most = 0;
  for (const RankFacts* r : ranks) {
    const double value = r->rates.*rate / 1e9;
    if (value <= 0) continue;
    least = least == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  }
  if (most == 0) return "";
  const auto digits = [](double value) {
    return value < 10 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
  };
  return digits(least) == digits(most) ? digits(most) : digits(least) + "-" + digits(most);
}

std::string describe_gpus(const HostRanks& ranks) {
  std::map<std::string, int> kinds;
  for (const RankFacts* r : ranks)
    if (r->gpu) ++kinds[r->gpu->name];
  std::string text;
  for (const auto& [name, count] : kinds)
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, name);
  return text.empty() ? "none" : text;
}

std::vector<HostRanks> group_by_host(Facts all) {
  std::vector<HostRanks> hosts;  // in order of their first rank
  std::map<std::string, size_t> places;
  for (const RankFacts& r : all) {
    const auto [place, is_new] = places.try_emplace(r.host, hosts.size());
    if (is_new) hosts.emplace_back();
    hosts[place->second].push_back(&r);
  }
  return hosts;
}

std::string describe_ranks(const HostRanks& ranks) {
  const int first = ranks.front()->rank, last = ranks.back()->rank;
  if (ranks.size() == 1) return fmt::format("{}", first);
  return last - first + 1 == std::ssize(ranks)
             ? fmt::format("{}-{}", first, last)
             : fmt::format("{} of {}..{}", ranks.size(), first, last);
}

std::string host_table(Facts all) {
  const std::vector<HostRanks> hosts = group_by_host(all);
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < hosts.size() && i < kMostHosts; ++i) {
    const HostRanks& ranks = hosts[i];
    const RankFacts& first = *ranks[0];
    std::set<int> cores;
    for (const RankFacts* r : ranks) cores.insert(r->cores.begin(), r->cores.end());
    rows.push_back(
        {first.host, describe_ranks(ranks),
         fmt::format("{} of {}, {} NUMA", cores.size(), first.host_cores, first.host_numa_nodes),
         fmt::format("{} of {}", format_bytes(static_cast<double>(first.memory_free_bytes)),
                     format_bytes(static_cast<double>(first.memory_total_bytes))),
         gigabytes(ranks, &Rates::host_copy), gigabytes(ranks, &Rates::write), describe_gpus(ranks),
         gigabytes(ranks, &Rates::gpu_copy), gigabytes(ranks, &Rates::to_gpu),
         gigabytes(ranks, &Rates::from_gpu)});
  }
  std::string text = observe::format_table({{"host"},
                                            {"ranks"},
                                            {"cores"},
                                            {"memory free"},
                                            {"copy", 12, true},
                                            {"disk", 12, true},
                                            {"GPUs"},
                                            {"copy", 12, true},
                                            {"to", 12, true},
                                            {"from", 12, true}},
                                           rows);
  if (!text.ends_with('\n')) text += '\n';
  if (hosts.size() > kMostHosts)
    text += fmt::format("... and {} more hosts\n", hosts.size() - kMostHosts);
  return text;
}

std::string links(Facts all, const char* name, const std::string& library, double Rates::*to_next,
                  double Rates::*gather, double smallest_s, const char* smallest) {
  HostRanks ranks;
  for (const RankFacts& r : all) ranks.push_back(&r);
  if (gigabytes(ranks, to_next).empty()) return "";
  return fmt::format(
      "{:<9} {}: {} {:.1f} us; to the next rank {} GB/s, all-gather {} GB/s per rank\n", name,
      library, smallest, smallest_s * 1e6, gigabytes(ranks, to_next), gigabytes(ranks, gather));
}

}  // namespace

std::string format_report(std::span<const RankFacts> ranks, std::span<const Finding> findings,
                          const std::string& folder) {
  const RankFacts& root = ranks[0];
  std::string text = fmt::format("slimexx {}, {} rank{}; rates in GB/s\n\n", root.build,
                                 ranks.size(), ranks.size() == 1 ? "" : "s");
  text += host_table(ranks) + "\n";
  if (root.gpu)
    text += fmt::format("{:<9} driver for CUDA {}.{}, built with {}.{}{}\n", "CUDA",
                        root.gpu->driver / 1000, root.gpu->driver % 1000 / 10,
                        root.gpu->runtime / 1000, root.gpu->runtime % 1000 / 10,
                        root.nccl.empty() ? "; no NCCL" : "; " + root.nccl);
  text += links(ranks, "ranks", root.mpi.empty() ? "no MPI" : root.mpi, &Rates::to_next,
                &Rates::gather, root.rates.barrier_s, "barrier");
  text += links(ranks, "GPUs", root.nccl, &Rates::gpu_to_next, &Rates::gpu_gather,
                root.rates.gpu_all_reduce_s, "all-reduce of one number");
  text += fmt::format("{:<9} {}, {} free\n\n", "folder", folder,
                      format_bytes(static_cast<double>(root.folder_free_bytes)));
  for (const Finding& f : findings)
    text +=
        fmt::format("{}: {}: {}\n        -> {}\n",
                    f.severity == Severity::kFault ? "fault" : "advice", f.where, f.what, f.remedy);
  if (findings.empty()) text += "no problems found\n";
  return text;
}

}  // namespace slimexx::doctor
