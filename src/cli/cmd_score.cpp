#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/result_lines.h"
#include "cli/run_flags.h"
#include "cli/token_rows.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/host.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/scorer.h"

namespace slimexx::cli {
namespace {

// What one rank computes at a time; a longer sequence stands alone.
constexpr int64_t kForwardTokens = 4096;

struct ScoreFlags {
  std::string hf_checkpoint, input, output, device;
  double temperature = 1.0;
};

// A whole sequence: all but its first token are the response.
sample::Sample sample_of(std::vector<int32_t> tokens) {
  const int64_t response_length = std::ssize(tokens) - 1;
  return {.tokens = std::move(tokens), .response_length = response_length};
}

using Samples = std::vector<sample::Sample>;

class Scoring {
 public:
  Scoring(const ScoreFlags& flags, Session& session)
      : session_(session),
        device_(rl::select_device(flags.device, session_.world.local_rank())),
        model_(rl::load_model(flags.hf_checkpoint, device_, false)),
        input_path_(flags.input),
        input_(flags.input),
        temperature_(static_cast<float>(flags.temperature)),
        output_(flags.output, session.is_root()) {}

  // Every rank reads the file and scores every size()-th pack of it.
  void run() {
    while (true) {
      std::vector<Samples> packs;
      while (std::ssize(packs) < session_.world.size()) {
        Samples pack = next_pack();
        if (pack.empty()) break;
        packs.push_back(std::move(pack));
      }
      if (packs.empty()) break;
      const auto rank = static_cast<size_t>(session_.world.rank());
      const std::string mine = rank < packs.size() ? score(packs[rank]) : "";
      for (const auto& text : dist::all_gather_bytes(session_.world.ranks(), mine)) write(text);
    }
    require_rows(output_.num_lines(), input_path_);
    output_.finish();
  }

 private:
  Samples next_pack() {
    Samples pack;
    int64_t num_tokens = 0;
    while (true) {
      if (!pending_.empty()) {
        const auto length = std::ssize(pending_);
        if (!pack.empty() && num_tokens + length > kForwardTokens) return pack;
        num_tokens += length;
        pack.push_back(sample_of(std::exchange(pending_, {})));
      }
      Json row;
      if (!io::next_json_object(input_, row)) return pack;
      pending_ =
          read_tokens(row, model_.spec.vocab_size, 2, model_.spec.max_positions, input_.where());
    }
  }

  // Lines of JSON. The rotary tables grow with the longest sequence seen.
  std::string score(const Samples& pack) {
    int64_t longest = 0;
    for (const auto& s : pack) longest = std::max<int64_t>(longest, std::ssize(s.tokens));
    if (!decoder_ || decoder_->max_positions() < longest) {
      scorer_.reset();
      decoder_ = std::make_unique<model::Decoder>(model_.spec, device_,
                                                  std::min(model_.spec.max_positions, 2 * longest));
      scorer_ = std::make_unique<train::Scorer>(*decoder_, *model_.store, temperature_, device_);
    }
    std::string lines;
    for (const train::TokenScores& scores : scorer_->score(pack)) {
      lines += "{\"logprobs\":";
      append_floats(lines, scores.log_probs);
      lines += ",\"entropy\":";
      append_floats(lines, scores.entropies);
      lines += "}\n";
    }
    return lines;
  }

  void write(std::string_view lines) {
    for (size_t begin = 0; begin < lines.size();) {
      const size_t end = lines.find('\n', begin);
      output_.write(lines.substr(begin, end - begin));
      begin = end + 1;
    }
  }

  Session& session_;
  tensor::Device device_;
  rl::LoadedModel model_;
  std::string input_path_;
  io::LineReader input_;
  float temperature_;
  ResultLines output_;
  std::vector<int32_t> pending_;  // read, and not in a pack yet
  std::unique_ptr<model::Decoder> decoder_;
  std::unique_ptr<train::Scorer> scorer_;
};

void run_score(const ScoreFlags& flags, Session& session) {
  require_file("--input", flags.input);
  require_other_file(flags.input, flags.output);
  require_temperature(flags.temperature);
  Scoring(flags, session).run();
}

}  // namespace

VerbBody declare_score(CLI::App& app) {
  auto flags = std::make_shared<ScoreFlags>();
  app.add_option("--hf-checkpoint", flags->hf_checkpoint, "Hugging Face folder of the model")
      ->type_name("DIR")
      ->required();
  app.add_option("--input", flags->input, "JSON lines {\"tokens\": [ids]}")
      ->type_name("FILE")
      ->required();
  app.add_option("--output", flags->output,
                 "JSON lines {\"logprobs\", \"entropy\"}; default stdout")
      ->type_name("FILE");
  app.add_option("--temperature", flags->temperature, "Divides the logits (default 1)")
      ->type_name("NUMBER");
  add_device_flag(app, flags->device);
  app.footer(
      "Number t of a line belongs to token t + 1.\n\nExamples:\n"
      "  slimexx score --hf-checkpoint model/ --input tokens.jsonl --output scores.jsonl\n"
      "  slimexx score --hf-checkpoint model/ --input tokens.jsonl.zst --temperature 0.8");
  return [flags](Session& session) { run_score(*flags, session); };
}

}  // namespace slimexx::cli
