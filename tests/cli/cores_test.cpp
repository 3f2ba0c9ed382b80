#include "cli/cores.h"

#include <gtest/gtest.h>

namespace slimexx::cli {
namespace {

TEST(Cores, RanksBoundToOneCoreOfManyAreTold) {
  const std::string text = describe_narrow_binding(1, 32, 2);
  EXPECT_NE(text.find("each of the 2 ranks here may run on 1 of the host's 32 cores"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("--bind-to none"), std::string::npos) << text;
}

TEST(Cores, NobodyElseIs) {
  EXPECT_EQ(describe_narrow_binding(1, 2, 2), "");    // as many as there are
  EXPECT_EQ(describe_narrow_binding(1, 7, 2), "");    // few
  EXPECT_EQ(describe_narrow_binding(1, 32, 1), "");   // one process: it was asked for
  EXPECT_EQ(describe_narrow_binding(16, 32, 2), "");  // all of them
  EXPECT_EQ(describe_narrow_binding(2, 32, 2), "");   // somebody chose
}

}  // namespace
}  // namespace slimexx::cli
