// Flags that several verbs share, and what they turn into.
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

// Throws Error(kUsage) if the file that `flag` names is not there.
void require_file(const std::string& flag, const std::string& path);

// Throws Error(kUsage) if --output names the same file as --input, by whatever name.
void require_other_file(const std::string& input, const std::string& output);

// Throws Error(kInput) for an input of no rows, which a mistake has made as a rule.
void require_rows(int64_t num_rows, const std::string& input);

// Throws Error(kUsage) for a temperature by which logits in f32 cannot be divided.
void require_temperature(double temperature);

// "key=value" of --set; throws Error(kUsage) for what has no key, '=' or value.
std::vector<config::Override> parse_settings(const std::vector<std::string>& settings);

// The error with flags of the command line in place of keys of the configuration's section
// `parallel`, for verbs that have the former: "--expert-model-parallel-size".
Error name_flags(const Error& error);

// `text` as a YAML scalar that the configuration reads back as it stands.
std::string quote_for_yaml(const std::string& text);

}  // namespace slimexx::cli
