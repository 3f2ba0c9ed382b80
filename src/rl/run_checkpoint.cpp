#include "run_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/base/thread_rank.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"

namespace slimexx::rl {
namespace {

using Section = std::pair<const char*, tensor::Tensor train::OwnedGroup::*>;
constexpr Section kSections[] = {{"master", &train::OwnedGroup::master},
                                 {"exp_avg", &train::OwnedGroup::exp_avg},
                                 {"exp_avg_sq", &train::OwnedGroup::exp_avg_sq}};

// Elements of a parameter that a rank owns: [begin, end) of it, from element `at` of the rank's
// arrays on.
struct Overlap {
  int64_t begin, end, at;
};
std::vector<Overlap> list_overlaps(const model::ParameterInfo& info,
                                   std::span<const train::OwnedPiece> pieces) {
  std::vector<Overlap> overlaps;
  for (const auto& piece : pieces) {
    const int64_t begin = std::max(info.offset, piece.range.begin) - info.offset;
    const int64_t end = std::min(info.offset + info.num_elements(), piece.range.end) - info.offset;
    if (begin < end)
      overlaps.push_back({begin, end, piece.begin + info.offset + begin - piece.range.begin});
  }
  return overlaps;
}

// Checkpoints hold f32. A moment in bf16 widens exactly, so that it reads back as it was.
constexpr int64_t kConvertedAtOnce = int64_t{1} << 24, kConvertedByThread = 65536;

// Not set to zero first: these are most of a rank's memory on the host.
using HostFloats = std::unique_ptr<float[]>;

HostFloats download_widened(const tensor::Tensor& own) {
  const tensor::Stream stream = tensor::compute_stream(own.device());
  const int64_t n = own.num_elements();
  HostFloats wide = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n));
  if (own.dtype() == tensor::DType::kF32) {
    tensor::download(stream, wide.get(), own);
    return wide;
  }
  SLX_CHECK(own.dtype() == tensor::DType::kBF16, "{}", own.shape_text());
  std::vector<uint16_t> narrow(static_cast<size_t>(std::min(n, kConvertedAtOnce)));
  for (int64_t at = 0; at < n; at += kConvertedAtOnce) {
    const int64_t count = std::min(kConvertedAtOnce, n - at);
    tensor::download(stream, narrow.data(), own.rows(at, at + count));
    parallel_for(count, kConvertedByThread, [&](int64_t begin, int64_t end) {
      tensor::convert_elements(tensor::DType::kBF16, narrow.data() + begin, tensor::DType::kF32,
                               wide.get() + at + begin, end - begin);
    });
  }
  return wide;
}

// Returns how many of the values are not representable in the type of `own`; those are rounded to
// nearest even.
int64_t upload_rounded(tensor::Stream stream, const tensor::Tensor& own,
                       const std::vector<float>& values) {
  if (own.dtype() == tensor::DType::kF32) {
    tensor::upload(stream, own, values.data());
    return 0;
  }
  SLX_CHECK(own.dtype() == tensor::DType::kBF16, "{}", own.shape_text());
  std::vector<uint16_t> narrow(values.size());
  std::atomic<int64_t> num_rounded = 0;
  parallel_for(static_cast<int64_t>(values.size()), kConvertedByThread,
               [&](int64_t begin, int64_t end) {
                 int64_t rounded = 0;
                 for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
                   narrow[i] = tensor::f32_to_bf16(values[i]);
                   rounded += (std::bit_cast<uint32_t>(values[i]) & 0xFFFFu) != 0 ? 1 : 0;
                 }
                 num_rounded += rounded;
               });
  tensor::upload(stream, own, narrow.data());
  return num_rounded;
}

}  // namespace

struct CheckpointWriter::Snapshot {
  int64_t step = 0;
  std::string directory;
  Json state;
  std::vector<io::CheckpointTensor> tensors;
  std::vector<io::CheckpointPiece> pieces;
  std::vector<HostFloats> data;  // what the pieces point into
  std::future<io::ShardInfo> shard;

  // What this rank owns of a group, from an array of its elements.
  void add(const model::ParameterStore& store, const train::OwnedGroup& group,
           const std::string& section, HostFloats values) {
    std::set<std::string> listed;
    for (const auto& info : store.infos()) {
      if (&store.group_of(info) != group.parameters) continue;
      for (const auto& part : info.parts)
        if (listed.insert(part.name).second)
          tensors.push_back({section, part.name, tensor::DType::kF32, part.shape});
      if (!info.is_counted) continue;  // another rank writes its copy
      for (const Overlap& o : list_overlaps(info, group.pieces))
        model::add_checkpoint_pieces(info, o.begin, o.end, section, values.get() + o.at - o.begin,
                                     pieces);
    }
    data.push_back(std::move(values));
  }
};

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options, dist::Collective& communicator)
    : options_(std::move(options)), communicator_(communicator) {}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(int64_t step, const Json& state, const model::ParameterStore& store,
                            const train::ShardedAdamW& optimizer) {
  finish_pending();
  pending_ = std::make_unique<Snapshot>();
  Snapshot& s = *pending_;
  s.step = step;
  s.directory = io::step_directory(options_.root, step);
  s.state = state;
  if (communicator_.rank() == 0) {
    // An interrupted or abandoned save of the same step, maybe of another number of ranks: the
    // manifest goes first, as it must not outlive its shards.
    std::filesystem::remove(join_path(s.directory, "manifest.json"));
    std::filesystem::remove_all(s.directory);
    make_directories(s.directory);
    io::copy_side_files(options_.side_files_from, s.directory);
  }
  communicator_.barrier();
  for (const auto& [section, member] : kSections) {
    for (const train::OwnedGroup& group : optimizer.groups())
      if (group.is_trained())
        s.add(store, group, section, download_widened(group.*member));
  }
  s.shard = std::async(options_.async ? std::launch::async : std::launch::deferred,
                       [&s, rank = communicator_.rank(), size = communicator_.size(),
                        thread_rank = slimexx::thread_rank()] {
                         const ThreadRankScope scope(thread_rank);
                         return io::write_shard(s.directory, rank, size, s.tensors, s.pieces);
                       });
  if (!options_.async) finish_pending();
}

void CheckpointWriter::poll() {
  if (!pending_) return;
  double busy[1] = {
      pending_->shard.wait_for(std::chrono::seconds(0)) != std::future_status::ready ? 1.0 : 0.0};
  dist::all_reduce_max(communicator_, busy);
  if (busy[0] == 0) commit();
}

void CheckpointWriter::finish_pending() {
  if (pending_) commit();
}

void CheckpointWriter::commit() {
  const std::unique_ptr<Snapshot> s = std::move(pending_);
  const io::ShardInfo mine = s->shard.get();
  const auto all = dist::all_gather_bytes(communicator_, io::shard_to_json(mine));
  if (communicator_.rank() == 0) {
    std::vector<io::ShardInfo> shards;
    for (const auto& text : all) shards.push_back(io::shard_from_json(text));
    io::write_manifest(s->directory, shards, s->state);
    io::set_latest(options_.root, std::filesystem::path(s->directory).filename().string());
    io::remove_old(options_.root, options_.keep_last);
    log_info("checkpoint {} is complete", s->directory);
  }
  communicator_.barrier();
}

void check_writable(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path folder = fs::absolute(root);
  while (!fs::exists(fs::symlink_status(folder, ignored)) && folder.has_relative_path())
    folder = folder.parent_path();
  // A file of its own for each rank; permissions alone say nothing of quotas and of root.
  std::string probe = (folder / ".slimexx_write_test_XXXXXX").string();
  const int fd = ::mkstemp(probe.data());
  if (fd < 0) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("cannot write checkpoints: {}: {}", folder.string(), std::strerror(errno)),
        "name a folder elsewhere by checkpoint.save", root);
  }
  ::close(fd);
  ::unlink(probe.c_str());
}

int64_t snapshot_bytes(const train::ShardedAdamW& optimizer) {
  int64_t bytes = 0;
  for (const train::OwnedGroup& group : optimizer.groups())
    if (group.is_trained()) bytes += std::ssize(kSections) * 4 * group.master.num_elements();
  return bytes;
}

bool has_finite_weights(const train::ShardedAdamW& optimizer, dist::Collective& communicator) {
  double broken[1] = {0};
  for (const train::OwnedGroup& group : optimizer.groups()) {
    if (!group.is_trained()) continue;
    const HostFloats master = download_widened(group.master);
    const std::span values(master.get(), static_cast<size_t>(group.master.num_elements()));
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x); })) broken[0] = 1;
  }
  dist::all_reduce_max(communicator, broken);
  return broken[0] == 0;
}

namespace {

void check_tensors(const io::Checkpoint& checkpoint, const model::ParameterInfo& info,
                   const char* section) {
  for (const auto& part : info.parts) {
    const auto* entry = checkpoint.find(section, part.name);
    if (entry == nullptr || entry->shape != part.shape || entry->dtype != tensor::DType::kF32) {
      throw Error(ErrorCode::kInput,
                  fmt::format("section \"{}\" has no fitting tensor \"{}\"", section, part.name),
                  "resume with the model that the checkpoint was made from",
                  checkpoint.directory());
    }
  }
}

// What this rank owns of a group, into the array `own` of its elements. Returns the number of
// values that were rounded.
int64_t load_section(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                     const train::OwnedGroup& group, const char* section,
                     const tensor::Tensor& own) {
  std::vector<float> buffer;
  int64_t num_rounded = 0;
  for (const auto& info : store.infos()) {
    if (&store.group_of(info) != group.parameters) continue;
    check_tensors(checkpoint, info, section);
    for (const Overlap& o : list_overlaps(info, group.pieces)) {
      buffer.resize(static_cast<size_t>(o.end - o.begin));
      for (const model::ElementRun& run : model::list_runs(info, o.begin, o.end))
        checkpoint.read(section, info.parts[run.part].name, run.on_disk, run.on_disk + run.size,
                        buffer.data() + run.in_parameter - o.begin);
      num_rounded += upload_rounded(tensor::compute_stream(own.device()),
                                    own.rows(o.at, o.at + o.end - o.begin), buffer);
    }
  }
  return num_rounded;
}

}  // namespace

void load_training_state(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                         train::ShardedAdamW& optimizer) {
  int64_t num_rounded = 0;
  for (const auto& [section, member] : kSections)
    for (const train::OwnedGroup& group : optimizer.groups())
      if (group.is_trained())
        num_rounded += load_section(checkpoint, store, group, section, group.*member);
  if (num_rounded > 0)
    log_info("{} values of the moments in {} were rounded to bfloat16 (optimizer.state_dtype)",
             num_rounded, checkpoint.directory());
  optimizer.publish_master();
}

}  // namespace slimexx::rl
