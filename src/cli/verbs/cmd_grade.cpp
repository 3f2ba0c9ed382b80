#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "cli/rows/result_lines.h"
#include "cli/rows/row_batch.h"
#include "cli/rows/token_rows.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/data/prompts.h"
#include "slimexx/reward/remote_service.h"
#include "slimexx/reward/rewards.h"

namespace slimexx::cli {
namespace {

constexpr int64_t kBatchRows = 1024;

struct GradeFlags {
  reward::RewardOptions reward;
  std::string input, output;
};

std::string text_or_json(const Json& value) {
  if (value.is_null()) return "";
  return value.is_string() ? value.get<std::string>()
                           : value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

reward::RewardInput read_input(Json row, int64_t index) {
  const auto take = [&](const char* key) {
    const auto it = row.find(key);
    const std::string text = it == row.end() ? "" : text_or_json(*it);
    row.erase(key);
    return text;
  };
  if (const auto label = row.find("label"); label != row.end()) *label = data::label_text(*label);
  text_of(row, "response");
  if (!row.contains("label")) {
    throw Error(ErrorCode::kInput, "key \"label\" is missing",
                "write \"label\": null for a row without a label");
  }
  reward::RewardInput input{.prompt = take("prompt"),
                            .response = take("response"),
                            .label = take("label"),
                            .metadata = {},
                            .seed = static_cast<uint64_t>(index)};
  if (!row.empty()) input.metadata = std::make_shared<const Json>(std::move(row));
  reward::check_own_rm_type(input);
  return input;
}

// Fewer retries than in a run: a run waits for the service to start, an interactive user does not.
constexpr int64_t kRetries = 3;

[[noreturn]] void refuse_service(const std::string& what) {
  throw Error(ErrorCode::kRun, what, "start the service, or fix its URL", "--rm-url");
}

std::unique_ptr<reward::Grader> open_grader(reward::RewardOptions options) {
  options.rm_retries = kRetries;
  auto grader = reward::make_grader(options);
  if (options.rm_url.empty() || !options.rm_type.ends_with("remote")) return grader;
  const std::string fault = reward::find_service_fault(options.rm_url);
  if (!fault.empty())
    refuse_service(
        fmt::format("the reward service at {} cannot be reached: {}", options.rm_url, fault));
  return grader;
}

std::vector<reward::Grade> grade(reward::Grader& grader,
                                 const std::vector<reward::RewardInput>& inputs) {
  try {
    return grader.grade(inputs);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kRun) throw;
    refuse_service(error.message());
  }
}

void run_grade(const GradeFlags& flags, Session& session) {
  if (!session.is_root()) return;
  const std::unique_ptr<reward::Grader> grader = open_grader(flags.reward);
  require_file("--input", flags.input);
  require_other_file(flags.input, flags.output);
  io::LineReader input(flags.input);
  ResultLines output(flags.output, true);
  RowBatch batch;
  int64_t num_rows = 0, num_failed = 0;
  while (read_batch(input, kBatchRows, batch)) {
    std::vector<reward::RewardInput> inputs(batch.size());
    for_each_row(batch, [&](size_t i) {
      inputs[i] = read_input(batch.rows[i], batch.first_index + static_cast<int64_t>(i));
    });
    for (const reward::Grade& one : grade(*grader, inputs)) {
      output.write(fmt::format("{{\"reward\":{},\"reason\":{}{}}}", format_double(one.reward),
                               quote_json(one.reason), one.failed ? ",\"failed\":true" : ""));
      num_failed += one.failed;
      ++num_rows;
    }
  }
  require_rows(output.num_lines(), flags.input);
  output.finish();
  if (num_failed > 0)
    log_warn(
        "the grader failed on {} of {} rows: they have \"failed\": true, and their reward is "
        "meaningless",
        num_failed, num_rows);
}

std::string names_of_rewards() {
  std::string text = "\nRewards:\n";
  for (const auto& info : reward::list_rewards()) {
    text += fmt::format("  {:<20}{}\n", info.name, info.doc);
  }
  return text +
         "  boxed_NAME          NAME, applied to the content of the last \\boxed{}; not for "
         "deepscaler, dapo\n";
}

}  // namespace

VerbBody declare_grade(CLI::App& app) {
  auto flags = std::make_shared<GradeFlags>();
  app.add_option("--rm-type", flags->reward.rm_type, "Grader, such as deepscaler or dapo")
      ->type_name("NAME")
      ->required();
  app.add_option("--input", flags->input,
                 "JSON lines {\"response\", \"label\"}; \"prompt\" is optional")
      ->type_name("FILE")
      ->required();
  app.add_option("--output", flags->output,
                 "JSON lines {\"reward\", \"reason\"}, with \"failed\" if there is no reward; "
                 "default stdout")
      ->type_name("FILE");
  app.add_option("--reward-key", flags->reward.reward_key,
                 "Value of the grader to report as the reward")
      ->type_name("KEY");
  app.add_option("--rm-url", flags->reward.rm_url, "URL of the service for --rm-type remote")
      ->type_name("URL");
  app.footer(names_of_rewards() +
             "\nExamples:\n"
             "  slimexx grade --rm-type deepscaler --input responses.jsonl --output rewards.jsonl\n"
             "  slimexx grade --rm-type dapo --reward-key acc --input responses.jsonl");
  return [flags](Session& session) { run_grade(*flags, session); };
}

}  // namespace slimexx::cli
