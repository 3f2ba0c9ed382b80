// `slimexx samples`: prints complete samples of a run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "cli/rows/shown_sample.h"
#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/lines.h"

namespace slimexx::cli {
namespace {

enum class Order { kFile, kWorst, kBest, kRandom };

struct SamplesFlags {
  std::string run, eval;
  bool worst = false, best = false, random = false, wrong = false, failed = false;
  int64_t count = 3;
  std::optional<int64_t> rollout, seed;

  Order order() const {
    return worst ? Order::kWorst : best ? Order::kBest : random ? Order::kRandom : Order::kFile;
  }
};

struct SampleFile {
  int64_t rollout = 0;  // for an evaluation: the rollout before it; -1 before training
  std::string path;
};

// File names number evaluations by the count of rollouts trained before them.
constexpr const char* kEvalPrefix = "eval_";
bool is_evaluation(const std::string& name) { return name.starts_with(kEvalPrefix); }

// Whether the file is from `slimexx eval`, which does not train: eval_SET.jsonl without a number.
bool is_standalone(const std::string& name) {
  const std::string stem = name.substr(0, name.find(".jsonl"));
  const size_t number = stem.rfind('_') + 1;
  return is_evaluation(name) && (stem.size() - number != 6 ||
                                 stem.find_first_not_of("0123456789", number) != std::string::npos);
}

// Files <prefix>_N.jsonl or <prefix>_N.jsonl.zst in a folder, by ascending N.
std::vector<SampleFile> list_sample_files(const std::string& folder, const std::string& prefix) {
  std::vector<SampleFile> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::string name = entry.path().filename().string();
    if (name.ends_with(".zst")) name.resize(name.size() - 4);
    if (!name.starts_with(prefix + "_") || !name.ends_with(".jsonl")) continue;
    const std::string digits = name.substr(prefix.size() + 1, name.size() - prefix.size() - 7);
    if (digits.empty() || digits.size() > 18 ||
        digits.find_first_not_of("0123456789") != std::string::npos)
      continue;
    files.push_back({std::stoll(digits) - (is_evaluation(name) ? 1 : 0), entry.path().string()});
  }
  std::ranges::sort(files, {}, [](const SampleFile& f) { return std::pair(f.rollout, f.path); });
  return files;
}

// The last rollout numbers, at most ten.
std::string list_rollouts(const std::vector<SampleFile>& files) {
  std::string text = files.size() > 10 ? "..." : "";
  for (size_t i = files.size() - std::min<size_t>(files.size(), 10); i < files.size(); ++i)
    text += fmt::format("{}{}", text.empty() ? "" : " ", files[i].rollout);
  return text;
}

bool is_run(const std::string& folder) {
  return path_exists(join_path(folder, "status.json")) ||
         path_exists(join_path(folder, "config.resolved.yaml"));
}

// The runs in a folder of runs, sorted by name, as "RUN/a, RUN/b".
std::string list_runs(const std::string& folder) {
  std::vector<std::string> runs;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error))
    if (is_run(entry.path().string())) runs.push_back(entry.path().string());
  std::ranges::sort(runs);
  return fmt::format("{}", fmt::join(runs, ", "));
}

void require_run(const std::string& folder) {
  if (is_run(folder) || path_exists(join_path(folder, "samples"))) return;
  const std::string runs = list_runs(folder);
  throw Error(ErrorCode::kUsage, "this folder is not a run folder",
              runs.empty() ? "give the folder of observe.run_dir"
                           : fmt::format("it contains runs: give one of {}", runs),
              folder);
}

// The data sets with evaluations, as "aime, math".
std::string list_evaluations(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const size_t end = name.rfind('_');
    if (is_evaluation(name) && end > std::string_view(kEvalPrefix).size())
      names.push_back(name.substr(std::string_view(kEvalPrefix).size(),
                                  end - std::string_view(kEvalPrefix).size()));
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string find_sample_file(const SamplesFlags& flags) {
  if (!path_exists(flags.run))
    throw Error(ErrorCode::kUsage, "there is no such run folder",
                "give the folder of observe.run_dir, or a file of samples", flags.run);
  if (!std::filesystem::is_directory(flags.run)) return flags.run;
  const std::string beside = join_path(flags.run, "samples");
  // The sample folder of `slimexx eval` has one file per data set.
  const std::string of_set = join_path(flags.run, kEvalPrefix + flags.eval + ".jsonl");
  if (!path_exists(beside) && !flags.eval.empty() && !flags.rollout && path_exists(of_set))
    return of_set;
  require_run(flags.run);
  const std::string& folder = beside;
  const auto files =
      list_sample_files(folder, flags.eval.empty() ? "rollout" : kEvalPrefix + flags.eval);
  if (files.empty()) {
    const std::string evaluations = list_evaluations(folder);
    throw Error(ErrorCode::kUsage,
                flags.eval.empty() ? "the run has written no samples yet"
                                   : fmt::format("the run has no evaluation of \"{}\"", flags.eval),
                flags.eval.empty() ? "observe.samples_interval sets the number of rollouts between "
                                     "files of samples; 0: never"
                : evaluations.empty()
                    ? "it has no evaluations; --eval needs a name from eval.eval_prompt_data"
                    : "available: " + evaluations,
                folder);
  }
  if (!flags.rollout) return files.back().path;
  const auto found = std::ranges::find(files, *flags.rollout, &SampleFile::rollout);
  if (found == files.end())
    throw Error(ErrorCode::kUsage,
                fmt::format("there are no samples of {}{}",
                            flags.eval.empty() ? "" : "an evaluation after ", *flags.rollout),
                "available: " + list_rollouts(files), folder);
  return found->path;
}

bool is_wanted(const ShownSample& sample, const SamplesFlags& flags) {
  if (flags.failed) return sample.grader_failed;
  if (flags.wrong) return !sample.grader_failed && sample.reward != 1;
  return true;
}

// Whether `a` is shown before `b`; equal samples keep their order in the file.
bool comes_before(const ShownSample& a, const ShownSample& b, Order order) {
  if (order == Order::kFile || order == Order::kRandom) return false;
  if (a.grader_failed != b.grader_failed) return b.grader_failed;  // no reward: last
  return order == Order::kWorst ? a.reward < b.reward : a.reward > b.reward;
}

struct Selection {
  std::vector<ShownSample> samples;
  int64_t num_read = 0, num_wanted = 0;
};

// Reads the file once and keeps only the samples to show.
Selection select_samples(const std::string& path, const SamplesFlags& flags) {
  std::mt19937_64 random(flags.seed ? static_cast<uint64_t>(*flags.seed) : std::random_device{}());
  const Order order = flags.order();
  const auto count = static_cast<size_t>(flags.count);
  Selection selection;
  auto& kept = selection.samples;
  const std::string name = std::filesystem::path(path).filename().string();
  const bool of_evaluation = is_evaluation(name), of_run = !is_standalone(name);
  io::LineReader reader(path);
  for (Json object; io::next_json_object(reader, object);) {
    ++selection.num_read;
    ShownSample sample = read_shown_sample(object, of_evaluation, reader.where());
    if (!of_run) sample.rollout.reset();
    if (!is_wanted(sample, flags)) continue;
    ++selection.num_wanted;
    if (order == Order::kRandom) {  // reservoir sampling
      const auto place = static_cast<size_t>(
          random() % static_cast<uint64_t>(selection.num_wanted));  // the bias is below 1e-12
      if (kept.size() < count) {
        kept.push_back(std::move(sample));
      } else if (place < count) {
        kept[place] = std::move(sample);
      }
      continue;
    }
    const auto place = std::ranges::find_if(
        kept, [&](const ShownSample& other) { return comes_before(sample, other, order); });
    if (place == kept.end() && kept.size() >= count) continue;
    kept.insert(place, std::move(sample));
    if (kept.size() > count) kept.pop_back();
  }
  return selection;
}

void run_samples(const SamplesFlags& flags, Session& session) {
  if (!session.is_root()) return;
  const std::string path = find_sample_file(flags);
  const Selection selection = select_samples(path, flags);
  if (selection.num_read == 0)
    throw Error(ErrorCode::kInput, "the file holds no samples", "give another file", path);
  std::string out;
  for (const ShownSample& sample : selection.samples) out += format_sample(sample) + "\n";
  const char* kind = flags.failed ? " whose grader failed" : flags.wrong ? " that are wrong" : "";
  out += fmt::format("{} of {} samples{} in {}\n", selection.samples.size(), selection.num_wanted,
                     kind, quote_path(path));
  write_stdout(out);
}

}  // namespace

VerbBody declare_samples(CLI::App& app) {
  auto flags = std::make_shared<SamplesFlags>();
  app.add_option("run", flags->run, "Run folder, or a single file of samples")
      ->type_name("RUN")
      ->required();
  const auto order = app.add_option_group("order");
  order->add_flag("--worst", flags->worst, "Lowest reward first");
  order->add_flag("--best", flags->best, "Highest reward first");
  order->add_flag("--random", flags->random, "Random samples");
  order->require_option(0, 1);
  const auto which = app.add_option_group("which");
  which->add_flag("--wrong", flags->wrong, "Only samples whose reward is not 1");
  which->add_flag("--failed", flags->failed, "Only samples that the grader could not score");
  which->require_option(0, 1);
  app.add_option("--n", flags->count, "Number of samples to print (default 3)")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  app.add_option("--rollout", flags->rollout,
                 "Rollout number (default: the newest). With --eval: the evaluation after that "
                 "rollout; -1: before training")
      ->type_name("N");
  app.add_option("--eval", flags->eval, "Print samples of this evaluation set instead of a rollout")
      ->type_name("NAME");
  app.add_option("--seed", flags->seed, "Seed for --random")->type_name("N");
  app.footer(
      "Examples:\n"
      "  slimexx samples runs/quickstart/grpo\n"
      "  slimexx samples runs/quickstart/grpo --wrong --random --n 5\n"
      "  slimexx samples runs/quickstart/grpo --eval held-out --worst\n"
      "  slimexx samples runs/quickstart/grpo --eval held-out --rollout -1");
  return [flags](Session& session) { run_samples(*flags, session); };
}

}  // namespace slimexx::cli
