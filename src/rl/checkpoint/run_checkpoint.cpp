#include "rl/checkpoint/run_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "rl/checkpoint/checkpoint_sections.h"
#include "slimexx/base/activity.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_rank.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/observe/span.h"

namespace slimexx::rl {
namespace {

// Data that the pieces of a checkpoint point to until the checkpoint is written. `data` points to
// `copy`, or to the state itself.
struct HostValues {
  tensor::DType dtype = tensor::DType::kF32;
  const char* data = nullptr;
  std::unique_ptr<char[]> copy = nullptr;
};

// Does not zero the memory: copies are most of a rank's host memory.
HostValues allocate_copy(tensor::DType dtype, int64_t num_elements) {
  HostValues values{.dtype = dtype};
  values.copy = std::make_unique_for_overwrite<char[]>(
      static_cast<size_t>(num_elements * tensor::dtype_bytes(dtype)));
  values.data = values.copy.get();
  return values;
}

HostValues download_state(const tensor::Tensor& own) {
  HostValues values = allocate_copy(own.dtype(), own.num_elements());
  tensor::download(tensor::compute_stream(own.device()), values.copy.get(), own);
  return values;
}

// Copies the weights of a group that this rank owns.
HostValues download_weights(const train::OwnedGroup& group) {
  const tensor::Tensor& weights = group.parameters->weights;
  HostValues values = allocate_copy(weights.dtype(), train::count_elements(group.pieces));
  for (const train::OwnedPiece& piece : group.pieces)
    tensor::download(tensor::compute_stream(weights.device()),
                     values.copy.get() + piece.begin * tensor::dtype_bytes(weights.dtype()),
                     weights.rows(piece.range.begin, piece.range.end));
  return values;
}

// Copies the same elements of a reference, which has the parameters of `store` at other offsets.
HostValues download_reference(const train::OwnedGroup& group, const model::ParameterStore& store,
                              const model::ParameterStore& reference) {
  const int64_t width = tensor::dtype_bytes(group.parameters->dtype);
  HostValues values = allocate_copy(group.parameters->dtype, train::count_elements(group.pieces));
  for (const auto& info : store.infos()) {
    if (&store.group_of(info) != group.parameters) continue;
    const int index = reference.find(info.name);
    if (index < 0) continue;  // a copy: other ranks save it
    const auto& own = reference.infos()[static_cast<size_t>(index)];
    const tensor::Tensor& weights = reference.group_of(own).weights;
    SLX_CHECK(weights.dtype() == values.dtype, "{}", info.name);
    for (const Overlap& o : list_overlaps(info, group.pieces))
      tensor::download(tensor::compute_stream(weights.device()), values.copy.get() + o.at * width,
                       weights.rows(own.offset + o.begin, own.offset + o.end));
  }
  return values;
}

// Whether checkpoints are written directly from the optimizer's state.
bool is_read_in_place(const train::ShardedAdamW& optimizer) { return optimizer.host_bytes() > 0; }

// Makes the folder to write to, with only the model's side files.
std::string start_folder(const std::string& root, int64_t step,
                         const std::string& side_files_from) {
  if (!path_exists(root)) log_warn("{} was removed during the run; it is created again", root);
  const std::string directory = io::start_step(root, step);
  try {
    io::copy_side_files(side_files_from, directory);
  } catch (const Error& error) {
    throw Error(ErrorCode::kEnvironment,
                "a checkpoint copies config.json, the tokenizer and similar files from the model's "
                "folder: " +
                    error.message(),
                "do not move model.hf_checkpoint during the run", error.where());
  }
  return directory;
}

// A vanished file of the save is a fault of the environment, not of the user's input.
template <class Work>
void while_run_goes_on(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kInput) throw;
    throw Error(ErrorCode::kEnvironment, "a checkpoint cannot be written: " + error.message(),
                "do not change the folder of checkpoints during the run", error.where());
  }
}

bool is_finite(const tensor::Tensor& values) {
  const tensor::Stream stream = tensor::compute_stream(values.device());
  std::vector<float> some;
  for (int64_t begin = 0; begin < values.dim(0); begin += kConvertedAtOnce) {
    const int64_t end = std::min(values.dim(0), begin + kConvertedAtOnce);
    some.resize(static_cast<size_t>(end - begin));
    tensor::download(stream, some.data(), values.rows(begin, end));
    if (!std::ranges::all_of(some, [](float x) { return std::isfinite(x); })) return false;
  }
  return true;
}

}  // namespace

struct CheckpointWriter::Snapshot {
  int64_t step = 0;
  bool reads_state = false;  // reads the optimizer's state in place
  std::string directory;
  Json state;
  std::vector<io::CheckpointTensor> tensors;
  std::vector<io::CheckpointPiece> pieces;
  std::vector<HostValues> data;  // the pieces point into it
  // Section and tensor; several groups may hold parts of the same tensor.
  std::set<std::pair<std::string, std::string>> listed;
  std::future<io::ShardInfo> shard;

  // Adds the elements of a group that this rank owns; `values` holds them all.
  void add(const model::ParameterStore& store, const train::OwnedGroup& group,
           const std::string& section, HostValues values) {
    for (const auto& info : store.infos()) {
      if (&store.group_of(info) != group.parameters) continue;
      for (const auto& part : info.parts)
        if (part.is_counted && listed.emplace(section, part.name).second)
          tensors.push_back({section, part.name, values.dtype, part.shape, part.dtype});
      for (const Overlap& o : list_overlaps(info, group.pieces))
        model::add_checkpoint_pieces(
            info, o.begin, o.end, section, values.dtype,
            values.data + (o.at - o.begin) * tensor::dtype_bytes(values.dtype), pieces);
    }
    data.push_back(std::move(values));
  }
};

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options, dist::Collective& communicator)
    : options_(std::move(options)), communicator_(communicator) {}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::save(int64_t step, const Json& state, const model::ParameterStore& store,
                            const train::ShardedAdamW& optimizer,
                            const model::ParameterStore* reference) {
  finish_pending();
  auto snapshot = std::make_unique<Snapshot>();
  Snapshot& s = *snapshot;
  s.step = step;
  s.reads_state = is_read_in_place(optimizer);
  s.state = state;
  dist::run_agreed(communicator_, [&] {
    if (communicator_.rank() == 0)
      s.directory = start_folder(options_.root, step, options_.side_files_from);
  });
  s.directory = dist::broadcast_bytes(communicator_, s.directory, 0);
  for (const auto& [section, member] : kSections) {
    for (const train::OwnedGroup& group : optimizer.groups()) {
      if (!group.is_trained()) continue;
      const tensor::Tensor& own = group.*member;
      s.add(store, group, section,
            s.reads_state
                ? HostValues{.dtype = own.dtype(), .data = static_cast<const char*>(own.raw())}
                : download_state(own));
    }
  }
  for (const train::OwnedGroup& group : optimizer.groups())
    if (!group.is_trained()) s.add(store, group, kFrozenSection, download_weights(group));
  if (reference != nullptr)
    for (const train::OwnedGroup& group : optimizer.groups())
      s.add(store, group, kReferenceSection, download_reference(group, store, *reference));
  s.shard = std::async(options_.async ? std::launch::async : std::launch::deferred,
                       [&s, rank = communicator_.rank(), size = communicator_.size(),
                        thread_rank = slimexx::thread_rank()] {
                         const ThreadRankScope scope(thread_rank);
                         return io::write_shard(s.directory, rank, size, s.tensors, s.pieces);
                       });
  pending_ = std::move(snapshot);
  last_saved_ = step;
  if (!options_.async) finish_pending();
}

void CheckpointWriter::poll() {
  if (!pending_) return;
  double busy[1] = {
      pending_->shard.wait_for(std::chrono::seconds(0)) != std::future_status::ready ? 1.0 : 0.0};
  dist::all_reduce_max(communicator_, busy);
  if (busy[0] == 0) commit();
}

void CheckpointWriter::release_state() {
  if (!pending_ || !pending_->reads_state) return;
  const PhaseScope phase("save_model");
  observe::Span span("save_wait");
  pending_->shard.wait();
}

void CheckpointWriter::finish_pending() {
  if (pending_) commit();
}

void CheckpointWriter::commit() {
  const PhaseScope phase("save_model");
  const std::unique_ptr<Snapshot> s = std::move(pending_);
  last_saved_ = -1;  // until the commit
  io::ShardInfo mine;
  dist::run_agreed(communicator_, [&] { while_run_goes_on([&] { mine = s->shard.get(); }); });
  const auto all = dist::all_gather_bytes(communicator_, io::shard_to_json(mine));
  dist::run_agreed(communicator_, [&] {
    if (communicator_.rank() > 0) return;
    std::vector<io::ShardInfo> shards;
    for (const auto& text : all) shards.push_back(io::shard_from_json(text));
    while_run_goes_on([&] {
      io::write_manifest(s->directory, shards, s->state);
      io::commit_step(options_.root, s->step);
      log_info("checkpoint {} is complete", io::step_directory(options_.root, s->step));
      io::remove_old(options_.root, options_.keep_last);
    });
  });
  last_saved_ = s->step;
}

void check_writable(const std::string& root) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  fs::path folder = fs::absolute(root);
  while (!fs::exists(fs::symlink_status(folder, ignored)) && folder.has_relative_path())
    folder = folder.parent_path();
  // Each rank creates a file of its own as a test: permissions do not show quotas, and root ignores
  // permissions.
  std::string probe = (folder / ".slimexx_write_test_XXXXXX").string();
  const int fd = ::mkstemp(probe.data());
  if (fd < 0) {
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format("cannot write checkpoints: {}: {}", folder.string(), std::strerror(errno)),
        "set checkpoint.save to another folder", root);
  }
  ::close(fd);
  ::unlink(probe.c_str());
}

int64_t snapshot_bytes(const train::ShardedAdamW& optimizer, bool with_reference) {
  int64_t bytes = 0;
  for (const train::OwnedGroup& group : optimizer.groups()) {
    int64_t bytes_an_element = with_reference ? tensor::dtype_bytes(group.parameters->dtype) : 0;
    if (!group.is_trained())
      bytes_an_element += tensor::dtype_bytes(group.parameters->dtype);
    else if (!is_read_in_place(optimizer))
      for (const auto& [section, member] : kSections)
        bytes_an_element += tensor::dtype_bytes((group.*member).dtype());
    bytes += train::count_elements(group.pieces) * bytes_an_element;
  }
  return bytes;
}

bool has_finite_weights(const train::ShardedAdamW& optimizer, dist::Collective& communicator) {
  double broken[1] = {0};
  for (const train::OwnedGroup& group : optimizer.groups())
    if (group.is_trained() && !is_finite(group.master)) broken[0] = 1;
  dist::all_reduce_max(communicator, broken);
  return broken[0] == 0;
}

}  // namespace slimexx::rl
