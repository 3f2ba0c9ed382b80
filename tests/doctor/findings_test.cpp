// Made-up facts give each fault and advice with its ranks; a sound launch gives none.
#include "slimexx/doctor/findings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "slimexx/doctor/report.h"

namespace slimexx::doctor {
namespace {

constexpr int64_t kGib = int64_t{1} << 30;

// Ranks of two hosts with four H200s each.
std::vector<RankFacts> sound_launch() {
  std::vector<RankFacts> ranks(8);
  for (int rank = 0; rank < 8; ++rank) {
    RankFacts& r = ranks[static_cast<size_t>(rank)];
    const int local = rank % 4;
    r.rank = rank;
    r.host = rank < 4 ? "node1" : "node2";
    r.build = "0.1 (abc)";
    r.mpi = "Open MPI v4.1.4";
    r.nccl = "NCCL 2.28.3";
    r.launched_ranks = 8;
    r.cores.resize(8);
    std::iota(r.cores.begin(), r.cores.end(), 8 * local);
    r.numa_nodes = {local / 2};
    r.host_cores = 32;
    r.host_numa_nodes = 2;
    r.num_threads = 8;
    r.memory_total_bytes = 512 * kGib;
    r.memory_free_bytes = 500 * kGib;
    r.open_files_limit = 65536;
    r.host_has_gpu_driver = r.build_has_cuda = true;
    r.num_visible_gpus = 4;
    r.gpu.emplace();
    r.gpu->name = "NVIDIA H200";
    r.gpu->pci = "0000:0" + std::to_string(local) + ":00.0";
    r.gpu->capability = 90;
    r.gpu->driver = r.gpu->runtime = 13000;
    r.gpu->numa_node = local / 2;
    r.gpu->total_bytes = 140 * kGib;
    r.gpu->free_bytes = 139 * kGib;
    r.gpu->num_peers = r.gpu->num_nvlink_peers = 3;
    r.folder_free_bytes = 1000 * kGib;
    r.rates = {.host_copy = 50e9,
               .gpu_copy = 4200e9,
               .to_gpu = 50e9,
               .from_gpu = 50e9,
               .write = 1e9,
               .to_next = 10e9,
               .gpu_to_next = 300e9,
               .gather = 10e9,
               .gpu_gather = 300e9,
               .barrier_s = 1e-5,
               .gpu_all_reduce_s = 2e-5};
  }
  return ranks;
}

struct Case {
  std::string name;
  std::function<void(std::vector<RankFacts>&)> change;
  Severity severity;
  std::string where, word;  // `word` must be in the finding's text
};

std::vector<Case> cases() {
  using Ranks = std::vector<RankFacts>;
  constexpr Severity kFault = Severity::kFault, kAdvice = Severity::kAdvice;
  return {
      {"OtherMpi", [](Ranks& r) { r.resize(1); }, kFault, "rank 0 (node1)", "started 8 ranks"},
      {"OtherBuild", [](Ranks& r) { r[5].build = "0.1 (def)"; }, kFault, "rank 5 (node2)", "def"},
      {"NoCuda",
       [](Ranks& r) {
         for (RankFacts& rank : r) {
           rank.build_has_cuda = false;
           rank.num_visible_gpus = 0;
           rank.gpu.reset();
         }
       },
       kAdvice, "ranks 0, 1, 2, 3 and 4 more", "no CUDA"},
      {"NoUsableGpu",
       [](Ranks& r) {
         r[2].num_visible_gpus = 0;
         r[2].gpu.reset();
       },
       kFault, "rank 2 (node1)", "no GPU can be used"},
      {"HiddenGpus",
       [](Ranks& r) {
         r[2].num_visible_gpus = 0;
         r[2].gpus_are_hidden = true;
         r[2].gpu.reset();
       },
       kAdvice, "rank 2 (node1)", "CUDA_VISIBLE_DEVICES"},
      {"GpuFault", [](Ranks& r) { r[1].gpu_fault = "capability 8.0"; }, kFault, "rank 1 (node1)",
       "capability 8.0"},
      {"SharedGpu", [](Ranks& r) { r[7].gpu->pci = r[6].gpu->pci; }, kFault, "ranks 6, 7 (node2)",
       "0000:02:00.0"},
      {"NcclFault", [](Ranks& r) { r[0].nccl_fault = "timeout"; }, kFault, "rank 0 (node1)",
       "timeout"},
      {"NoNccl",
       [](Ranks& r) {
         for (RankFacts& rank : r) rank.nccl.clear();
       },
       kFault, "ranks 0, 1, 2, 3 and 4 more", "no NCCL"},
      {"IdleGpus",
       [](Ranks& r) {
         r.pop_back();
         r[0].launched_ranks = 0;
         for (RankFacts& rank : r) rank.launched_ranks = 7;
       },
       kAdvice, "node2", "1 of 4 GPUs"},
      {"MixedGpus", [](Ranks& r) { r[4].gpu->name = "NVIDIA H20"; }, kAdvice, "rank 4 (node2)",
       "NVIDIA H20"},
      {"GpuInUse", [](Ranks& r) { r[3].gpu->free_bytes = 60 * kGib; }, kAdvice, "rank 3 (node1)",
       "80.0 GiB"},
      {"NoNvlink", [](Ranks& r) { r[3].gpu->num_nvlink_peers = 1; }, kAdvice, "rank 3 (node1)",
       "1 of 3"},
      {"FarCores", [](Ranks& r) { r[3].numa_nodes = {0}; }, kAdvice, "rank 3 (node1)",
       "NUMA node 1"},
      {"BoundToOneCore",
       [](Ranks& r) {
         r[1].cores = {8};
         r[1].num_threads = 1;
       },
       kAdvice, "rank 1 (node1)", "1 of the host's 32"},
      {"ThreadsShareCores",
       [](Ranks& r) {
         for (int i = 0; i < 4; ++i) r[static_cast<size_t>(i)].num_threads = 9;
       },
       kAdvice, "ranks 0, 1, 2, 3 (node1)", "36 threads share 32 cores"},
      {"LittleMemory",
       [](Ranks& r) {
         for (int i = 4; i < 8; ++i) r[static_cast<size_t>(i)].memory_free_bytes = 7 * kGib;
       },
       kAdvice, "node2", "7.0 GiB"},
      {"FewFiles", [](Ranks& r) { r[2].open_files_limit = 256; }, kAdvice, "rank 2 (node1)", "256"},
      {"FolderFault", [](Ranks& r) { r[6].folder_fault = "/x: read-only"; }, kFault,
       "rank 6 (node2)", "read-only"},
      {"FolderNotShared",
       [](Ranks& r) {
         for (int i = 4; i < 8; ++i) r[static_cast<size_t>(i)].sees_folder_of_root = false;
       },
       kFault, "ranks 4, 5, 6, 7 (node2)", "does not see"},
      {"FullDisk", [](Ranks& r) { r[0].folder_free_bytes = 10 * kGib; }, kFault, "rank 0 (node1)",
       "10.0 GiB free"},
      {"SlowDisk", [](Ranks& r) { r[0].rates.write = 40e6; }, kAdvice, "rank 0 (node1)", "40 MB/s"},
      {"SlowMemory", [](Ranks& r) { r[5].rates.host_copy = 30e9; }, kAdvice, "rank 5 (node2)",
       "copies memory at 30.0"},
      {"SlowGpu", [](Ranks& r) { r[5].rates.gpu_copy = 3000e9; }, kAdvice, "rank 5 (node2)",
       "GPU memory"},
      {"SlowUpload", [](Ranks& r) { r[5].rates.to_gpu = 12e9; }, kAdvice, "rank 5 (node2)",
       "to the GPU"},
      {"SlowDownload", [](Ranks& r) { r[5].rates.from_gpu = 12e9; }, kAdvice, "rank 5 (node2)",
       "from the GPU"},
      {"SlowLink", [](Ranks& r) { r[3].rates.to_next = 1e9; }, kAdvice, "rank 3 (node1)",
       "next rank"},
      {"SlowGpuLink", [](Ranks& r) { r[3].rates.gpu_to_next = 40e9; }, kAdvice, "rank 3 (node1)",
       "GPU of the next rank"},
  };
}

std::string text_of(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& f : findings) text += f.where + ": " + f.what + "; ";
  return text;
}

const Needs kNeeds{.checkpoint_bytes = 100.0 * kGib};

TEST(DoctorFindings, ASoundLaunchHasNone) {
  EXPECT_EQ(text_of(find_problems(sound_launch(), kNeeds)), "");
}

class DoctorFinding : public testing::TestWithParam<Case> {};

TEST_P(DoctorFinding, IsFoundAloneAndNamed) {
  std::vector<RankFacts> ranks = sound_launch();
  GetParam().change(ranks);
  std::vector<Finding> findings = find_problems(ranks, kNeeds);
  std::erase_if(findings, [&](const Finding& f) {  // drops its advice on idle GPUs
    return GetParam().name == "OtherMpi" && f.severity == Severity::kAdvice;
  });
  ASSERT_EQ(findings.size(), 1U) << text_of(findings);
  EXPECT_EQ(findings[0].severity, GetParam().severity);
  EXPECT_EQ(findings[0].where, GetParam().where);
  EXPECT_NE(findings[0].what.find(GetParam().word), std::string::npos) << findings[0].what;
  EXPECT_FALSE(findings[0].remedy.empty());
}

INSTANTIATE_TEST_SUITE_P(Problems, DoctorFinding, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(DoctorFindings, FaultsComeFirst) {
  std::vector<RankFacts> ranks = sound_launch();
  ranks[0].rates.write = 40e6;
  ranks[1].gpu_fault = "broken";
  ranks[2].open_files_limit = 1;
  const auto findings = find_problems(ranks, kNeeds);
  ASSERT_EQ(findings.size(), 3U) << text_of(findings);
  EXPECT_EQ(findings[0].severity, Severity::kFault);
}

TEST(DoctorReport, IsOneScreen) {
  std::vector<RankFacts> ranks = sound_launch();
  ranks[3].rates.to_next = 1e9;
  const auto findings = find_problems(ranks, kNeeds);
  const std::string report = format_report(ranks, findings, "/runs");
  for (const char* word : {"node1", "0-3", "4-7", "4 x NVIDIA H200", "32 of 32, 2 NUMA", "4200",
                           "1.0-10", "NCCL 2.28.3", "advice: rank 3 (node1)", "-> "})
    EXPECT_NE(report.find(word), std::string::npos) << word << "\n" << report;
  EXPECT_LE(std::ranges::count(report, '\n'), 24) << report;
  EXPECT_NE(format_report(sound_launch(), {}, "/runs").find("no problems found"),
            std::string::npos);
}

}  // namespace
}  // namespace slimexx::doctor
