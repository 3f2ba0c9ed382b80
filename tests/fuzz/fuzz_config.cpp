// Reads the input as a configuration. Either it binds, and the resolved configuration reads back to
// itself, or it fails with an Error about the user's input.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "config/options_fixture.h"
#include "slimexx/base/error.h"

namespace {

using slimexx::config::Config;

std::string resolve(const std::string& yaml,
                    const std::vector<slimexx::config::Override>& overrides) {
  Config config = Config::parse(yaml, "fuzz.yaml", overrides);
  slimexx::config::TestOptions options;
  slimexx::config::bind_test_options(config.binder(), options);
  config.finish();
  return config.resolved_yaml();
}

}  // namespace

// If the first line starts with '=', it is the value of an override.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string yaml(reinterpret_cast<const char*>(data), size);
  std::vector<slimexx::config::Override> overrides;
  if (yaml.starts_with('=')) {
    const size_t end = yaml.find('\n');
    overrides.push_back(
        {"rollout.rollout_stop", yaml.substr(1, end == std::string::npos ? end : end - 1)});
    yaml = end == std::string::npos ? "" : yaml.substr(end + 1);
  }
  std::string resolved;
  try {
    resolved = resolve(yaml, overrides);
  } catch (const slimexx::Error& e) {
    if (e.code() != slimexx::ErrorCode::kUsage) std::abort();
    return 0;
  }
  if (resolve(resolved, {}) != resolved) std::abort();  // an Error here is a bug too
  return 0;
}
