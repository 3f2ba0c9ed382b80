// Requests for features that the engine refuses only on a device; cuda_cases.cpp runs the shared
// suites on the device.
#include "rollout/engine_case.h"
#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

class EngineCuda : public EngineSuite {};

TEST_P(EngineCuda, PagesOfOtherSizesAreRefused) {
  for (const int64_t page : {1, 8, 24}) {
    EngineOptions options = roomy();
    options.page_tokens = page;
    try {
      engine(options);
      ADD_FAILURE() << page;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUsage);
      EXPECT_NE(error.message().find("powers of two from 16"), std::string::npos)
          << error.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineCuda, testing::ValuesIn(engine_cases()), case_name);

}  // namespace
}  // namespace slimexx::rollout
