#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "cli/standard_output.h"
#include "cli/verbs.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/base/log.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/conversion.h"
#include "slimexx/io/fp8_conversion.h"
#include "slimexx/io/hf_folder_writer.h"
#include "slimexx/io/owned_files.h"
#include "slimexx/observe/console.h"

namespace slimexx::cli {
namespace {

constexpr int64_t kShardBytes = int64_t{512} << 20;

struct ConvertFlags {
  std::string hf_checkpoint, save, to = "sharded", load;
  bool verify = false;
  // --to fp8 only
  std::optional<std::string> strategy, scale_fmt;
  std::vector<int64_t> block_size;
  int max_workers = 0;
};

[[noreturn]] void refuse(const std::string& what, const std::string& hint) {
  throw Error(ErrorCode::kUsage, what, hint, "slimexx convert-hf");
}

bool holds_files(const std::string& directory) {
  std::error_code error;
  return path_exists(directory) && !(std::filesystem::is_directory(directory, error) &&
                                     std::filesystem::is_empty(directory, error));
}

// Whether to write the target: false if it already exists and is only to be verified.
bool wants_writing(const ConvertFlags& flags) {
  if (!holds_files(flags.save)) return true;
  if (!flags.verify) {
    throw Error(ErrorCode::kUsage, "the output folder is not empty",
                "choose a new folder, remove this one, or compare it with --verify", flags.save);
  }
  log_info("{} already exists: it is verified, not written", flags.save);
  return false;
}

// Prints the table; differences give exit status 5.
void report(const std::vector<io::Difference>& rows, const std::string& directory) {
  std::vector<std::vector<std::string>> cells;
  for (const io::Difference& row : rows)
    cells.push_back({row.name, row.shape, row.dtype, row.verdict});
  write_stdout(observe::format_table({{.header = "tensor", .max_width = 80, .keep_tail = true},
                                      {.header = "shape"},
                                      {.header = "dtype"},
                                      {.header = "max|d|", .right_align = true}},
                                     cells));
  const auto different = std::ranges::count(rows, false, &io::Difference::is_equal);
  if (different > 0) {
    throw Error(ErrorCode::kCheck, fmt::format("{} of {} tensors differ", different, rows.size()),
                "remove the folder and convert again", directory);
  }
  print("{} tensors are bit-identical\n", rows.size());
}

// A wrong hash of a file counts as a difference (kCheck).
void check_hashes(const io::Checkpoint& written) {
  try {
    written.verify_hashes();
  } catch (const Error& e) {
    throw Error(ErrorCode::kCheck, e.message(), "remove the folder and convert again", e.where());
  }
}

// The folder to write; rank 0 removes it if any rank fails. Calls are collective and return the
// same on all ranks.
class Target {
 public:
  Target(const ConvertFlags& flags, const std::string& side_files_from, Session& session)
      : session_(session) {
    std::string answer;
    on_root([&] {
      answer = wants_writing(flags) ? "write" : "verify";
      if (answer == "write") folder_.emplace(flags.save, io::converted_files(side_files_from));
    });
    wants_writing_ = dist::broadcast_bytes(ranks(), answer, 0) == "write";
  }
  bool wants_writing_now() const { return wants_writing_; }
  dist::Collective& ranks() { return session_.world.ranks(); }
  void on_root(const std::function<void()>& work) {
    dist::run_agreed(ranks(), [&] {
      if (session_.is_root()) work();
    });
  }
  void keep() {
    if (folder_) folder_->keep();
  }

 private:
  Session& session_;
  std::optional<NewFolder> folder_;
  bool wants_writing_ = false;
};

void write_sharded(const ConvertFlags& flags, const io::HfFolder& folder, Target& target) {
  dist::Collective& ranks = target.ranks();
  std::string lines;
  dist::run_agreed(ranks, [&] {
    for (const io::ShardInfo& shard : io::write_weight_shards(
             flags.save, folder, kShardBytes, ranks.rank(), ranks.size(), ranks.rank() == 0))
      lines += io::shard_to_json(shard) + "\n";
  });
  std::vector<io::ShardInfo> shards;
  for (const std::string& text : dist::all_gather_bytes(ranks, lines))
    for (const std::string_view line : split(text, '\n'))
      if (!line.empty()) shards.push_back(io::shard_from_json(std::string(line)));
  target.on_root([&] { io::commit_weight_shards(flags.save, folder, std::move(shards)); });
  target.keep();
}

void convert_to_sharded(const ConvertFlags& flags, Session& session) {
  if (!flags.load.empty())
    refuse("--load needs --to hf", "without --to hf, the input is --hf-checkpoint");
  if (flags.hf_checkpoint.empty()) refuse("--hf-checkpoint is missing", "give the folder to read");
  const io::HfFolder folder = io::HfFolder::open(flags.hf_checkpoint);
  Target target(flags, flags.hf_checkpoint, session);
  if (target.wants_writing_now()) write_sharded(flags, folder, target);
  if (!flags.verify || !session.is_root()) return;
  const io::Checkpoint checkpoint = io::Checkpoint::open(flags.save);
  check_hashes(checkpoint);
  report(io::compare_tensors(io::list_tensors(folder),
                             io::list_weights(checkpoint, tensor::DType::kF32)),
         flags.save);
}

io::Checkpoint open_checkpoint(const std::string& directory) {
  const std::string found = io::find_checkpoint(directory);
  if (found.empty()) {
    throw Error(ErrorCode::kInput, "there is no complete checkpoint",
                "give a folder with manifest.json, a folder with step_* folders, or a run folder",
                directory);
  }
  return io::Checkpoint::open(found);
}

void write_hf(const ConvertFlags& flags, const io::TensorList& weights,
              const io::HfWriteOptions& options, Target& target) {
  dist::Collective& ranks = target.ranks();
  io::HfFolderWriter writer(flags.save, weights, options);
  target.on_root([&] { writer.create(); });
  dist::run_agreed(ranks, [&] {
    io::write_share(writer, weights, ranks.rank(), ranks.size());
    writer.flush();
  });
  double written[1] = {static_cast<double>(writer.written_bytes())};
  dist::all_reduce_sum(ranks, written);
  target.on_root([&] { writer.commit(static_cast<uint64_t>(written[0])); });
  target.keep();
}

void convert_to_hf(const ConvertFlags& flags, Session& session) {
  if (flags.load.empty()) refuse("--to hf needs --load", "give the checkpoint to read");
  const io::Checkpoint checkpoint = open_checkpoint(flags.load);
  dist::run_agreed(session.world.ranks(), [&] {
    if (session.is_root()) checkpoint.verify_hashes();
  });
  const std::string& side_files =
      flags.hf_checkpoint.empty() ? checkpoint.directory() : flags.hf_checkpoint;
  const std::string config = join_path(side_files, "config.json");
  if (!path_exists(config)) {
    throw Error(ErrorCode::kInput, "the checkpoint has no config.json",
                "give the model's folder with --hf-checkpoint", side_files);
  }
  const io::TensorList weights =
      io::list_weights(checkpoint, io::dtype_of_config(parse_json_file(config), config));
  if (weights.empty()) {
    throw Error(ErrorCode::kInput, "the checkpoint holds no weights",
                "give a checkpoint written by train or convert-hf", checkpoint.directory());
  }
  Target target(flags, side_files, session);
  if (target.wants_writing_now())
    write_hf(flags, weights, io::hf_options_of(checkpoint, side_files), target);
  if (!flags.verify || !session.is_root()) return;
  const io::HfFolder written = io::HfFolder::open(flags.save);
  report(io::compare_tensors(weights, io::list_tensors(written)), flags.save);
}

io::Fp8Options fp8_options(const ConvertFlags& flags) {
  io::Fp8Options options;
  const std::string strategy = flags.strategy.value_or("block");
  if (strategy == "channel") {
    options.strategy = io::Fp8Strategy::kChannel;
  } else if (strategy == "tensor") {
    options.strategy = io::Fp8Strategy::kTensor;
  } else if (strategy != "block") {
    refuse(fmt::format("--strategy \"{}\" is unknown", strategy), "use block, channel or tensor");
  }
  const bool is_block = options.strategy == io::Fp8Strategy::kBlock;
  if (!flags.block_size.empty()) {
    constexpr int64_t kMaxBlock = 1 << 20;
    if (!is_block)
      refuse(fmt::format("--block-size needs --strategy block, not {}", strategy), "leave it out");
    if (flags.block_size.size() != 2 ||
        std::ranges::any_of(flags.block_size, [](int64_t n) { return n < 1 || n > kMaxBlock; }))
      refuse("--block-size needs two sizes: rows and columns",
             "give for example --block-size 128 128");
    options.block_rows = flags.block_size[0];
    options.block_columns = flags.block_size[1];
  }
  const std::string scales = flags.scale_fmt.value_or(is_block ? "ue8m0" : "float");
  if (scales != "ue8m0" && scales != "float")
    refuse(fmt::format("--scale-fmt \"{}\" is unknown", scales),
           "use ue8m0 (powers of two, stored as f32) or float");
  if (scales == "ue8m0" && !is_block)
    refuse(fmt::format("--scale-fmt ue8m0 needs --strategy block, not {}", strategy), "use float");
  options.scale_rule =
      scales == "float" ? tensor::F8ScaleRule::kFloat : tensor::F8ScaleRule::kPowerOfTwo;
  return options;
}

void report_fp8(const io::Fp8Summary& summary, const std::string& save) {
  if (summary.skipped_files > 0)
    log_info("{} files were finished by an earlier run", summary.skipped_files);
  for (const std::string& name : summary.with_nan)
    log_warn("{}: a block holds a NaN or an infinity; its scale is NaN", name);
  log_info("{}: {} tensors in FP8, {} unchanged, in {} files", save, summary.quantised,
           summary.kept, summary.files);
}

void convert_to_fp8(const ConvertFlags& flags, Session& session) {
  if (!flags.load.empty()) refuse("--load needs --to hf", "--to fp8 reads --hf-checkpoint");
  if (flags.verify) refuse("--verify needs --to sharded or --to hf", "leave it out");
  if (flags.hf_checkpoint.empty()) refuse("--hf-checkpoint is missing", "name the folder to read");
  const io::Fp8Options options = fp8_options(flags);
  if (flags.max_workers > 0) set_num_threads(flags.max_workers);
  const io::HfFolder folder = io::HfFolder::open(flags.hf_checkpoint);
  io::Fp8Conversion conversion(folder, flags.save, options);
  dist::Collective& ranks = session.world.ranks();
  const auto on_root = [&](const std::function<void()>& work) {
    dist::run_agreed(ranks, [&] {
      if (session.is_root()) work();
    });
  };
  on_root([&] { conversion.create(); });
  dist::run_agreed(ranks, [&] {
    report_fp8(conversion.write(ranks.rank(), ranks.size(), session.is_root()), flags.save);
  });
  on_root([&] { conversion.commit(); });
}

void run_convert(const ConvertFlags& flags, Session& session) {
  if (flags.to == "fp8") return convert_to_fp8(flags, session);
  if (flags.strategy || flags.scale_fmt || !flags.block_size.empty() || flags.max_workers > 0)
    refuse("--strategy, --block-size, --scale-fmt and --max-workers need --to fp8",
           "leave them out");
  if (flags.to == "sharded") {
    convert_to_sharded(flags, session);
  } else if (flags.to == "hf") {
    convert_to_hf(flags, session);
  } else {
    const auto nearest = nearest_name(flags.to, {"sharded", "hf", "fp8"});
    refuse(fmt::format("--to \"{}\" is not a checkpoint format", flags.to),
           nearest ? fmt::format("did you mean {}?", *nearest) : "use sharded, hf or fp8");
  }
}

}  // namespace

VerbBody declare_convert_hf(CLI::App& app) {
  auto flags = std::make_shared<ConvertFlags>();
  app.add_option("--hf-checkpoint", flags->hf_checkpoint,
                 "Hugging Face folder to read; with --to hf: the folder to copy config and "
                 "tokenizer files from")
      ->type_name("DIR");
  app.add_option("--save", flags->save, "Folder to write")->type_name("DIR")->required();
  app.add_option("--to", flags->to, "Output format: sharded (default), hf or fp8")
      ->type_name("FORM");
  app.add_option("--load", flags->load, "With --to hf: checkpoint to read, or the folder of a run")
      ->type_name("DIR");
  app.add_flag("--verify", flags->verify,
               "Read the result back, compare it with the source, and print a table; exit status 5 "
               "if they differ");
  app.add_option("--strategy", flags->strategy,
                 "fp8: one scale per block (default), channel or tensor")
      ->type_name("NAME");
  app.add_option("--block-size", flags->block_size, "fp8: rows and columns of a block (128 128)")
      ->type_name("ROWS COLUMNS")
      ->expected(2);
  app.add_option("--scale-fmt", flags->scale_fmt,
                 "fp8: ue8m0 (powers of two, the default for blocks) or float")
      ->type_name("NAME");
  app.add_option("--max-workers", flags->max_workers,
                 "fp8: threads of each rank (default: its cores)")
      ->type_name("COUNT")
      ->check(CLI::Range(1, 4096));
  app.footer(
      "Tensors keep their dtype, name and file; those of a training checkpoint get the same dtypes "
      "as\n"
      "in an export by checkpoint.save_hf. Under mpirun each rank writes a share.\n\n"
      "--to fp8 quantises the matrices that serving engines run in FP8 (e4m3). A conversion that\n"
      "was interrupted continues when the same command runs again.\n\nExamples:\n"
      "  slimexx convert-hf --hf-checkpoint model/ --save sharded/ --verify\n"
      "  slimexx convert-hf --to hf --load sharded/ --save model-again/\n"
      "  slimexx convert-hf --to hf --load runs/x/checkpoints --save trained/ --verify\n"
      "  slimexx convert-hf --to fp8 --hf-checkpoint model/ --save model-fp8/\n"
      "  slimexx convert-hf --to fp8 --strategy channel --hf-checkpoint model/ --save model-fp8/");
  return [flags](Session& session) { run_convert(*flags, session); };
}

}  // namespace slimexx::cli
