#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/rows/prompt_text.h"
#include "cli/rows/result_lines.h"
#include "cli/rows/row_batch.h"
#include "cli/rows/token_rows.h"
#include "cli/run_flags.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"

namespace slimexx::cli {
namespace {

constexpr int64_t kBatchRows = 1024;

struct TokenizeFlags {
  std::string hf_checkpoint, input, output;
};

std::string text_to_tokenize(const PromptText& text, const Json& row) {
  if (row.contains("text") == row.contains("messages")) {
    throw Error(ErrorCode::kInput,
                row.contains("text") ? "the row has both keys \"text\" and \"messages\""
                                     : "the row has neither key \"text\" nor \"messages\"",
                "write {\"text\": \"...\"} or {\"messages\": [...]}");
  }
  return row.contains("text") ? text_of(row, "text") : text.render(row);
}

void run_tokenize(const TokenizeFlags& flags, Session& session) {
  if (!session.is_root()) return;
  require_file("--input", flags.input);
  require_other_file(flags.input, flags.output);
  const PromptText text(flags.hf_checkpoint);
  io::LineReader input(flags.input);
  ResultLines output(flags.output, true);
  RowBatch batch;
  while (read_batch(input, kBatchRows, batch)) {
    std::vector<std::string> lines(batch.size());
    for_each_row(batch, [&](size_t i) {
      const std::string source = text_to_tokenize(text, batch.rows[i]);
      lines[i] = "{\"ids\":";
      append_ids(lines[i], text.encode(source));
      lines[i] += ",\"text\":" + quote_json(source) + "}";
    });
    for (const std::string& line : lines) output.write(line);
  }
  require_rows(output.num_lines(), flags.input);
  output.finish();
}

}  // namespace

VerbBody declare_tokenize(CLI::App& app) {
  auto flags = std::make_shared<TokenizeFlags>();
  app.add_option("--hf-checkpoint", flags->hf_checkpoint, "Folder with tokenizer and chat template")
      ->type_name("DIR")
      ->required();
  app.add_option("--input", flags->input, "JSON lines {\"text\"} or {\"messages\", ...}")
      ->type_name("FILE")
      ->required();
  app.add_option("--output", flags->output, "JSON lines {\"ids\", \"text\"}; default stdout")
      ->type_name("FILE");
  app.footer(
      "A row of messages is rendered with the folder's chat template; its other keys (tools,\n"
      "add_generation_prompt, enable_thinking, ...) become variables of the template.\n"
      "\n"
      "Examples:\n"
      "  slimexx tokenize --hf-checkpoint model/ --input texts.jsonl --output ids.jsonl");
  return [flags](Session& session) { run_tokenize(*flags, session); };
}

}  // namespace slimexx::cli
