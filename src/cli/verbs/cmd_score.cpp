#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/rows/result_lines.h"
#include "cli/rows/token_rows.h"
#include "cli/run_flags.h"
#include "cli/thread_ranks.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/rl/loaded_model.h"
#include "slimexx/train/scorer.h"

namespace slimexx::cli {
namespace {

// Tokens per forward pass on one rank; a longer sequence has its own pass.
constexpr int64_t kForwardTokens = 4096;

struct ScoreFlags {
  std::string hf_checkpoint, input, output, device;
  double temperature = 1.0;
  dist::GridSizes grid = {};
  model::PipelineSplit split = {};
  int thread_ranks = 0;
};

// A sample for a whole sequence: all tokens except the first are the response.
sample::Sample sample_of(std::vector<int32_t> tokens) {
  const int64_t response_length = std::ssize(tokens) - 1;
  return {.tokens = std::move(tokens), .response_length = response_length};
}

using Samples = std::vector<sample::Sample>;

class Scoring {
 public:
  Scoring(const ScoreFlags& flags, Session& session)
      : session_(session),
        device_(select_rank_device(session_.world, flags.device)),
        ranks_(rl::make_model_ranks(session_.world, flags.grid, flags.split)),
        grid_(session_.world.ranks(), flags.grid, device_),
        model_(rl::load_model(flags.hf_checkpoint, device_, false, false, &ranks_)),
        input_path_(flags.input),
        input_(flags.input),
        temperature_(static_cast<float>(flags.temperature)),
        output_(flags.output, session.is_root()) {}

  // Every rank reads the file. In each round, each of the dp replicas scores one pack, even an
  // empty one, since expert parallelism needs all ranks. Higher replicas report from higher ranks,
  // so gathering by rank keeps the order of the packs.
  void run() {
    const dist::Collective& dp = grid_.groups().dp;
    while (true) {
      std::vector<Samples> packs;
      while (std::ssize(packs) < dp.size()) {
        packs.push_back(next_pack());
        if (packs.back().empty()) break;
      }
      if (packs[0].empty()) break;
      packs.resize(static_cast<size_t>(dp.size()));
      const std::string mine = score(packs, static_cast<size_t>(dp.rank()));
      const auto all = dist::all_gather_bytes(session_.world.ranks(), mine);
      for (const auto& text : all) check_finite(text);
      for (const auto& text : all) write(text);
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

  // Returns JSON lines. The rotary tables grow with the longest sequence so far.
  std::string score(const std::vector<Samples>& packs, size_t own) {
    int64_t longest = 1, most_tokens = 0;
    for (const Samples& pack : packs) {
      int64_t num_tokens = 0;
      for (const auto& s : pack) {
        longest = std::max<int64_t>(longest, std::ssize(s.tokens));
        num_tokens += std::ssize(s.tokens);
      }
      most_tokens = std::max(most_tokens, num_tokens);
    }
    if (decoders_.empty() || decoders_[0]->max_positions() < longest) {
      scorer_.reset();
      decoders_ = rl::make_decoders(model_.spec, ranks_, device_,
                                    std::min(model_.spec.max_positions, 2 * longest));
      std::vector<const model::Decoder*> chunks;
      for (const auto& decoder : decoders_) chunks.push_back(decoder.get());
      scorer_ = std::make_unique<train::Scorer>(train::StageDecoders(chunks), *model_.store,
                                                temperature_, device_, grid_.groups());
    }
    std::string lines;
    for (const train::TokenScores& scores : scorer_->score(packs[own], most_tokens)) {
      lines += "{\"logprobs\":";
      append_floats(lines, scores.log_probs);
      lines += ",\"entropy\":";
      append_floats(lines, scores.entropies);
      lines += "}\n";
    }
    return lines;
  }

  // All ranks have the same lines, so all throw together. Non-finite values are null in JSON.
  void check_finite(std::string_view lines) {
    for (size_t begin = 0; begin < lines.size(); ++num_checked_) {
      const size_t end = lines.find('\n', begin);
      if (lines.substr(begin, end - begin).find("null") != std::string_view::npos)
        throw dist::AgreedError(
            Error(ErrorCode::kRun,
                  fmt::format("log-probs of row {} are NaN or infinite: activations overflow",
                              num_checked_),
                  "check the weights, and the scales of FP8 weights", input_path_));
      begin = end + 1;
    }
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
  rl::ModelRanks ranks_;
  dist::ProcessGrid grid_;
  rl::LoadedModel model_;
  std::string input_path_;
  io::LineReader input_;
  float temperature_;
  int64_t num_checked_ = 0;  // rows checked so far
  ResultLines output_;
  std::vector<int32_t> pending_;  // row that is read but not yet in a pack
  std::vector<std::unique_ptr<model::Decoder>> decoders_;
  std::unique_ptr<train::Scorer> scorer_;
};

void run_score(const ScoreFlags& flags, Session& session) {
  require_file("--input", flags.input);
  require_other_file(flags.input, flags.output);
  require_temperature(flags.temperature);
  try {
    Scoring(flags, session).run();
  } catch (const dist::AgreedError& error) {
    throw dist::AgreedError(name_flags(error));
  } catch (const Error& error) {
    throw name_flags(error);
  }
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
  app.add_option("--temperature", flags->temperature,
                 "Temperature that divides the logits (default 1)")
      ->type_name("NUMBER");
  const auto add_size = [&](const char* name, int& size, const char* doc) {
    app.add_option(name, size, doc)->type_name("N")->check(CLI::Range(1, 1 << 20));
  };
  add_size("--tensor-model-parallel-size", flags->grid.tp, "Tensor parallelism");
  add_size("--pipeline-model-parallel-size", flags->grid.pp, "Pipeline stages");
  const auto add_layers = [&](const char* name, std::optional<int64_t>& layers, const char* doc) {
    app.add_option(name, layers, doc)->type_name("N")->check(CLI::Range(1, 1 << 20));
  };
  add_layers("--decoder-first-pipeline-num-layers", flags->split.first_layers,
             "Layers of the first pipeline stage; default: an even share");
  add_layers("--decoder-last-pipeline-num-layers", flags->split.last_layers,
             "Layers of the last pipeline stage; default: an even share");
  add_size("--context-parallel-size", flags->grid.cp, "Context parallelism");
  add_size("--expert-model-parallel-size", flags->grid.ep, "Expert parallelism");
  add_size("--expert-tensor-parallel-size", flags->grid.etp, "Tensor parallelism within experts");
  add_thread_ranks_flag(app, flags->thread_ranks);
  add_device_flag(app, flags->device);
  app.footer(
      "In an output line, value t belongs to token t + 1.\n"
      "\n"
      "Examples:\n"
      "  slimexx score --hf-checkpoint model/ --input tokens.jsonl --output scores.jsonl\n"
      "  slimexx score --hf-checkpoint model/ --input tokens.jsonl.zst --temperature 0.8\n"
      "  mpirun -np 4 slimexx score --hf-checkpoint model/ --input tokens.jsonl \\\n"
      "      --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2");
  return [flags](Session& session) {
    run_on_ranks(flags->thread_ranks, session, [&](Session& own) { run_score(*flags, own); });
  };
}

}  // namespace slimexx::cli
