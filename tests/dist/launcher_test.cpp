#include "slimexx/dist/launcher.h"

#include <gtest/gtest.h>

#include <map>

namespace slimexx::dist {
namespace {

using Variables = std::map<std::string, std::string>;

Launch launch_of(const Variables& variables) {
  return find_launch([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Launcher, OneProcessIsRightWhereNobodyStartedMore) {
  const std::vector<Variables> cases = {
      {},
      // A batch script in an allocation of eight tasks, outside srun.
      {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}, {"SLURM_NNODES", "2"}},
      {{"SLURM_STEP_NUM_TASKS", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}},
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"PMIX_RANK", "0"}},
      // mpirun started its helpers on two hosts with srun.
      {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
      {{"PMI_SIZE", "1"}, {"PMI_RANK", "0"}},
      {{"PMIX_RANK", "0"}},
      {{"WORLD_SIZE", "1"}, {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "x"}},
      {{"WORLD_SIZE", "8"}},
      {{"RANK", "1"}},
      {{"SLURM_STEP_NUM_TASKS", ""}},
      {{"SLURM_STEP_NUM_TASKS", "many"}},
  };
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_FALSE(find_lone_rank_fault(launch_of(cases[i]))) << i;
}

TEST(Launcher, ALoneRankOfSeveralIsAFault) {
  struct Case {
    Variables variables;
    std::string what, hint;
    bool is_for_mpi = true, is_certain = true;
  };
  const std::vector<Case> cases = {
      {{{"SLURM_STEP_NUM_TASKS", "2"}}, "srun started 2 processes", "srun --mpi=pmix"},
      {{{"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_PROCID", "3"}, {"PMIX_RANK", "3"}},
       "srun started 4 processes",
       "env -u SLURM_STEP_NUM_TASKS"},
      {{{"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "started 2 processes", "env -u PMI_SIZE"},
      {{{"PMI_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}},
       "started 2 processes",
       "mpirun of the MPI"},
      {{{"OMPI_COMM_WORLD_SIZE", "2"}}, "mpirun started 2 processes", "slimexx doctor"},
      {{{"MV2_COMM_WORLD_SIZE", "3"}}, "started 3 processes", "mpirun of the MPI"},
      {{{"PMIX_RANK", "1"}}, "at least 2 processes", "env -u PMIX_RANK"},
      {{{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"TORCHELASTIC_RUN_ID", "none"}},
       "torchrun started 2 processes",
       "mpirun -np N",
       false},
      {{{"WORLD_SIZE", "2"}, {"RANK", "1"}}, "WORLD_SIZE is 2", "mpirun -np N", false, false},
  };
  for (const Case& c : cases) {
    const Launch launch = launch_of(c.variables);
    EXPECT_EQ(launch.is_for_mpi, c.is_for_mpi) << c.what;
    EXPECT_EQ(launch.is_certain, c.is_certain) << c.what;
    const auto fault = find_lone_rank_fault(launch);
    ASSERT_TRUE(fault) << c.what;
    EXPECT_EQ(fault->code(), ErrorCode::kEnvironment);
    EXPECT_NE(fault->message().find(c.what), std::string::npos) << fault->what();
    EXPECT_NE(fault->hint().find(c.hint), std::string::npos) << fault->what();
  }
}

}  // namespace
}  // namespace slimexx::dist
