// Flags that several verbs share, with their checks and conversions.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/config/config.h"

namespace CLI {
class App;
}

namespace slimexx::cli {

void add_device_flag(CLI::App& app, std::string& device);
void add_set_flag(CLI::App& app, std::vector<std::string>& settings);

// Throws Error(kUsage) if `path`, the value of `flag`, does not exist.
void require_file(const std::string& flag, const std::string& path);

// Throws Error(kUsage) if --output is the same file as --input, even under another name.
void require_other_file(const std::string& input, const std::string& output);

// Throws Error(kInput) for an input without rows, which is usually a mistake.
void require_rows(int64_t num_rows, const std::string& input);

// Throws Error(kUsage) for a temperature that f32 logits cannot be divided by.
void require_temperature(double temperature);

// Parses "key=value" of --set; throws Error(kUsage) if key, '=' or value is missing.
std::vector<config::Override> parse_settings(const std::vector<std::string>& settings);

// The error with keys of the configuration's section `parallel` replaced by flags such as
// "--expert-model-parallel-size", for verbs with these flags.
Error name_flags(const Error& error);

// `text` as a YAML scalar that the configuration reads back unchanged.
std::string quote_for_yaml(const std::string& text);

}  // namespace slimexx::cli
