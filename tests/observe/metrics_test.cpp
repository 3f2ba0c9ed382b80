#include "slimexx/observe/metrics.h"

#include <gtest/gtest.h>

#include <set>

namespace slimexx::observe {
namespace {

TEST(Catalogue, has_no_name_twice) {
  std::set<std::string_view> seen;
  for (const MetricInfo& info : metric_catalogue()) {
    EXPECT_TRUE(seen.insert(info.name).second) << info.name;
    EXPECT_FALSE(info.meaning.empty()) << info.name;
    EXPECT_NE(info.name.find('/'), std::string_view::npos) << info.name;
  }
  EXPECT_GT(seen.size(), 150u);
}

}  // namespace
}  // namespace slimexx::observe
