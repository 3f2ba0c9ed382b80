#include <gtest/gtest.h>

#include <fstream>

#include "run_binary.h"

namespace slimexx::cli {
namespace {

TEST(Docs, WritesPagesThatItThenFindsUnchanged) {
  const Folder folder;
  ASSERT_EQ(run_slimexx({"docs", "--write", folder / "reference"}).status, 0);
  EXPECT_NE(read_bytes(folder / "reference/config.md").find("rollout_batch_size"),
            std::string::npos);
  EXPECT_NE(read_bytes(folder / "reference/metrics.md").find("train/"), std::string::npos);
  EXPECT_NE(read_bytes(folder / "reference/slime-flags.md").find("--rollout-batch-size"),
            std::string::npos);
  EXPECT_EQ(run_slimexx({"docs", "--check", folder / "reference"}).status, 0);
  std::ofstream(folder / "reference/metrics.md", std::ios::app) << "drift\n";
  const Finished f = run_slimexx({"docs", "--check", folder / "reference"});
  EXPECT_EQ(f.status, 5);
  EXPECT_NE(f.err.find("metrics.md"), std::string::npos) << f.err;
}

TEST(Help, OfEveryVerbIsOnStdout) {
  const Finished overview = run_slimexx({"-h"});
  EXPECT_EQ(overview.status, 0);
  for (const char* verb : {"train", "eval", "convert-hf", "score", "tokenize", "grade", "generate",
                           "init", "describe", "doctor", "plan", "samples", "version", "docs"}) {
    EXPECT_NE(overview.out.find(std::string("\n  ") + verb), std::string::npos) << verb;
    const Finished brief = run_slimexx({verb, "-h"}), full = run_slimexx({verb, "--help"});
    EXPECT_EQ(brief.status, 0) << verb;
    EXPECT_EQ(full.status, 0) << verb;
    EXPECT_EQ(brief.err + full.err, "") << verb;
    EXPECT_EQ(brief.out.find("Examples:"), std::string::npos) << verb;
    EXPECT_GE(full.out.size(), brief.out.size()) << verb;
  }
  EXPECT_NE(run_slimexx({"score", "--help"}).out.find("Examples:"), std::string::npos);
}

TEST(Version, SaysWhatWasBuilt) {
  const Finished f = run_slimexx({"version"});
  EXPECT_EQ(f.status, 0);
  EXPECT_EQ(f.out.rfind("slimexx ", 0), 0u) << f.out;
#ifdef SLX_WITH_CUDA
  const char* cuda = "cuda yes, ";
#else
  const char* cuda = "cuda no\n";
#endif
  for (const char* word : {"build", "features", cuda, "qwen3", "1 rank"}) {
    EXPECT_NE(f.out.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace slimexx::cli
