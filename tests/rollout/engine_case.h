// Parameters of the engine's test suites: models of every family on a device. Each test program
// defines its own (cpu_cases.cpp, cuda_cases.cpp).
#pragma once
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "rollout/samples.h"

namespace slimexx::rollout {

struct EngineCase {
  std::string family;
  tensor::Device device;
  model::ModelSpec spec;
  std::vector<int64_t> pages;  // page sizes that the device supports, ascending
  int64_t max_sequence = 116;  // crosses the CPU attention's block of 64 keys
};
inline void PrintTo(const EngineCase& c, std::ostream* out) { *out << c.family; }
std::vector<EngineCase> engine_cases();

// The device for multi-rank engines, and models whose sizes are divisible by four.
struct RankSetting {
  tensor::Device device;
  int64_t smallest_page = 1;
  int num_prompts = 1;  // enough for engines with small caches to preempt
  model::ModelSpec (*spec_of)(const std::string& family, int64_t num_layers) = nullptr;
};
RankSetting rank_setting();

class EngineSuite : public testing::TestWithParam<EngineCase> {
 protected:
  void SetUp() override {
    if (!device().is_cpu() && tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no GPU";
    tensor::select_device(device());
    model_ = std::make_unique<RandomModel>(GetParam().spec, device(), false);
  }
  tensor::Device device() const { return GetParam().device; }
  int64_t max_sequence() const { return GetParam().max_sequence; }
  int64_t smallest_page() const { return GetParam().pages.front(); }

  EngineOptions roomy() const {
    EngineOptions options;
    options.max_total_tokens = 8000;
    options.max_sequence_tokens = max_sequence();
    return options;
  }
  Engine engine(const EngineOptions& options) const {
    return Engine(model_->decoder, model_->weights, device(), options, nullptr, 0);
  }
  // Runs the requests one after another on one engine.
  std::vector<Completion> each_alone(const std::vector<Request>& requests) {
    if (!alone_) {
      EngineOptions options = roomy();
      options.enable_prefix_cache = false;
      alone_.reset(new Engine(engine(options)));
    }
    std::vector<Completion> all;
    for (const Request& request : requests) all.push_back(generate_all(*alone_, {request}).front());
    EXPECT_EQ(alone_->stats().preemptions + alone_->stats().cached_tokens, 0);
    EXPECT_EQ(alone_->stats().max_running, 1);
    return all;
  }

  std::unique_ptr<RandomModel> model_;
  std::unique_ptr<Engine> alone_;
};

inline std::string case_name(const testing::TestParamInfo<EngineCase>& info) {
  return info.param.family;
}

}  // namespace slimexx::rollout
