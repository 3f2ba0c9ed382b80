// Facts about this host, gathered by thread ranks, and the kernel's lists of cores.
#include "slimexx/doctor/facts.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "doctor/facts_json.h"
#include "doctor/host_facts.h"
#include "slimexx/dist/thread_ranks.h"

namespace slimexx::doctor {
namespace {

TEST(DoctorFacts, ListsOfCores) {
  EXPECT_EQ(parse_cpu_list("0-3,8,10-11\n"), (std::vector<int>{0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_cpu_list("5"), (std::vector<int>{5}));
  EXPECT_TRUE(parse_cpu_list("").empty());
  for (const char* broken : {"x", "3-1", "-2", "0-99999999", "1-", "1x"})
    EXPECT_TRUE(parse_cpu_list(broken).empty()) << broken;
  EXPECT_EQ(parse_cpu_list("0-1,x,4"), (std::vector<int>{0, 1}));
}

TEST(DoctorFacts, SurviveTheWayToOtherRanks) {
  RankFacts facts;
  facts.rank = 3;
  facts.host = "node \xff";  // not UTF-8
  facts.cores = {1, 2};
  facts.rates.to_next = 1.25e9;
  RankFacts copy = unpack_facts(pack_facts(facts));
  EXPECT_EQ(copy.rank, 3);
  EXPECT_EQ(copy.cores, facts.cores);
  EXPECT_EQ(copy.rates.to_next, 1.25e9);
  EXPECT_FALSE(copy.gpu);
  facts.gpu.emplace();
  facts.gpu->name = "GPU";
  copy = unpack_facts(pack_facts(facts));
  ASSERT_TRUE(copy.gpu);
  EXPECT_EQ(copy.gpu->name, "GPU");
}

TEST(DoctorFacts, AreThoseOfAllRanksOnEveryRank) {
  const std::string folder = testing::TempDir() + "doctor_facts";
  std::filesystem::create_directories(folder);
  dist::run_thread_ranks(3, [&](dist::Collective& ranks) {
    dist::World world(std::move(ranks));
    const auto all = gather_facts(world, "build", {folder});
    ASSERT_EQ(all.size(), 3U);
    for (int rank = 0; rank < 3; ++rank) {
      const RankFacts& r = all[static_cast<size_t>(rank)];
      EXPECT_EQ(r.rank, rank);
      EXPECT_EQ(r.host, all[0].host);
      EXPECT_FALSE(r.cores.empty());
      EXPECT_FALSE(r.numa_nodes.empty());
      EXPECT_GT(r.memory_total_bytes, r.memory_free_bytes);
      EXPECT_GT(r.memory_free_bytes, 0);
      EXPECT_EQ(r.folder_fault, "");
      EXPECT_TRUE(r.sees_folder_of_root);
      for (const double rate :
           {r.rates.host_copy, r.rates.write, r.rates.to_next, r.rates.gather, r.rates.barrier_s})
        EXPECT_GT(rate, 0);
    }
  });
  EXPECT_TRUE(std::filesystem::is_empty(folder)) << "files are left behind";
}

TEST(DoctorFacts, AFolderThatCannotBeWrittenIsToldNotThrown) {
  dist::run_thread_ranks(2, [&](dist::Collective& ranks) {
    dist::World world(std::move(ranks));
    const auto all = gather_facts(world, "build", {"/proc/no_such_folder"});
    for (const RankFacts& r : all) {
      EXPECT_NE(r.folder_fault.find("/proc/no_such_folder"), std::string::npos) << r.folder_fault;
      EXPECT_FALSE(r.sees_folder_of_root);
    }
  });
}

}  // namespace
}  // namespace slimexx::doctor
