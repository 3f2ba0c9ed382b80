#include "cli/cores.h"

#include <gtest/gtest.h>

namespace slimexx::cli {
namespace {

TEST(Cores, RanksBoundToOneCoreOfManyAreTold) {
  const std::string text = describe_narrow_binding(1, 32, 2);
  EXPECT_NE(text.find("each of the 2 ranks on this host may use only 1 of its 32 cores"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("--bind-to none"), std::string::npos) << text;
}

TEST(Cores, NobodyElseIs) {
  EXPECT_EQ(describe_narrow_binding(1, 2, 2), "");    // all cores are used
  EXPECT_EQ(describe_narrow_binding(1, 7, 2), "");    // few cores are idle
  EXPECT_EQ(describe_narrow_binding(1, 32, 1), "");   // one process: the user asked for it
  EXPECT_EQ(describe_narrow_binding(16, 32, 2), "");  // all cores are used
  EXPECT_EQ(describe_narrow_binding(2, 32, 2), "");   // not the default: the user asked for it
}

}  // namespace
}  // namespace slimexx::cli
