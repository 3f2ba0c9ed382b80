#include "cli/run_flags.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/json.h"
#include "slimexx/base/url.h"

namespace slimexx::cli {

void add_device_flag(CLI::App& app, std::string& device) {
  app.add_option("--device", device, "cpu or cuda; default: cuda if there is a GPU")
      ->type_name("NAME");
}

void add_set_flag(CLI::App& app, std::vector<std::string>& settings) {
  app.add_option("--set", settings, "Set keys of the configuration, such as optimizer.lr=1e-6")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
}

void require_file(const std::string& flag, const std::string& path) {
  if (path_exists(path)) return;
  throw Error(ErrorCode::kUsage, "no such file", "check the path that " + flag + " names", path);
}

void require_other_file(const std::string& input, const std::string& output) {
  std::error_code error;
  if (!std::filesystem::equivalent(input, output, error) || error) return;
  throw Error(ErrorCode::kUsage, "--output and --input name the same file",
              "choose another output file, which would otherwise overwrite the input", output);
}

void require_rows(int64_t num_rows, const std::string& input) {
  if (num_rows > 0) return;
  throw Error(ErrorCode::kInput, "the file has no rows", "expected one JSON object per line",
              input);
}

void require_temperature(double temperature) {
  constexpr double kLeast = 1e-6, kGreatest = 1e6;
  if (temperature >= kLeast && temperature <= kGreatest) return;
  throw Error(ErrorCode::kUsage, fmt::format("the temperature is {}", temperature),
              fmt::format("give a number from {} to {}", kLeast, kGreatest), "--temperature");
}

std::vector<config::Override> parse_settings(const std::vector<std::string>& settings) {
  std::vector<config::Override> overrides;
  for (const std::string& setting : settings) {
    const size_t equals = setting.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw Error(ErrorCode::kUsage,
                  fmt::format("\"{}\" is not KEY=VALUE", hide_secrets_in_text(setting)),
                  "write for example --set optimizer.lr=1e-6", "--set");
    }
    if (equals + 1 == setting.size()) {  // usually an unset variable in a script
      throw Error(ErrorCode::kUsage,
                  fmt::format("\"{}\" has no value", hide_secrets_in_text(setting)),
                  "write KEY=null for the default, or KEY='\"\"' for an empty text", "--set");
    }
    overrides.push_back({setting.substr(0, equals), setting.substr(equals + 1)});
  }
  return overrides;
}

Error name_flags(const Error& error) {
  const auto rename = [](std::string text) {
    constexpr std::string_view kSection = "parallel.";
    for (size_t at = text.find(kSection); at != std::string::npos; at = text.find(kSection, at)) {
      text.replace(at, kSection.size(), "--");
      for (at += 2; at < text.size() && (text[at] == '_' || (text[at] >= 'a' && text[at] <= 'z'));
           ++at)
        if (text[at] == '_') text[at] = '-';
    }
    return text;
  };
  return Error(error.code(), rename(error.message()), rename(error.hint()), rename(error.where()));
}

std::string quote_for_yaml(const std::string& text) {
  std::string escaped;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '$' && i + 1 < text.size() && text[i + 1] == '{') escaped += '$';
    escaped += text[i];
  }
  return Json(escaped).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace slimexx::cli
