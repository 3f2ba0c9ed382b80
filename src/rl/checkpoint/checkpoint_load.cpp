// Loads a run's checkpoint into the model and the optimizer.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <span>
#include <string_view>
#include <vector>

#include "rl/checkpoint/checkpoint_sections.h"
#include "rl/checkpoint/run_checkpoint.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/log.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/boxes.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::rl {
namespace {

// Returns the number of values that the type of `own` cannot represent; they are rounded to nearest
// even.
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

void check_tensors(const io::Checkpoint& checkpoint, const model::ParameterInfo& info,
                   std::string_view section) {
  for (const auto& part : info.parts) {
    const auto* entry = checkpoint.find(std::string(section), part.name);
    const bool fits =
        entry != nullptr && entry->shape == part.shape && tensor::is_convertible(entry->dtype);
    if (!fits) {
      throw Error(ErrorCode::kInput,
                  fmt::format("section \"{}\" has no tensor \"{}\" of the expected shape and dtype",
                              section, part.name),
                  "resume with the model that the checkpoint was made from",
                  checkpoint.directory());
    }
  }
}

// Reads elements [begin, end) of a tensor of the checkpoint, of any type that widens to f32.
void read_f32(const io::Checkpoint& checkpoint, const char* section, const std::string& name,
              int64_t begin, int64_t end, float* values) {
  const tensor::DType saved_type = checkpoint.find(section, name)->dtype;
  if (saved_type == tensor::DType::kF32) return checkpoint.read(section, name, begin, end, values);
  std::vector<char> raw(static_cast<size_t>((end - begin) * tensor::dtype_bytes(saved_type)));
  checkpoint.read(section, name, begin, end, raw.data());
  parallel_for(end - begin, kConvertedByThread, [&](int64_t from, int64_t to) {
    tensor::convert_elements(saved_type, raw.data() + from * tensor::dtype_bytes(saved_type),
                             tensor::DType::kF32, values + from, to - from);
  });
}

// Loads the elements of a group that this rank owns into `own`, kConvertedAtOnce at a time through
// host memory. Returns the number of values that were rounded.
int64_t load_section(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                     const train::OwnedGroup& group, const char* section,
                     const tensor::Tensor& own) {
  std::vector<float> buffer;
  int64_t num_rounded = 0;
  for (const auto& info : store.infos()) {
    if (&store.group_of(info) != group.parameters) continue;
    check_tensors(checkpoint, info, section);
    for (const Overlap& o : list_overlaps(info, group.pieces)) {
      for (int64_t begin = o.begin; begin < o.end; begin += kConvertedAtOnce) {
        const int64_t end = std::min(o.end, begin + kConvertedAtOnce), at = o.at + begin - o.begin;
        buffer.resize(static_cast<size_t>(end - begin));
        for (const model::ElementRun& run : model::list_runs(info, begin, end))
          read_f32(checkpoint, section, info.parts[run.part].name, run.on_disk,
                   run.on_disk + run.size, buffer.data() + run.in_parameter - begin);
        num_rounded += upload_rounded(tensor::compute_stream(own.device()),
                                      own.rows(at, at + end - begin), buffer);
      }
    }
  }
  return num_rounded;
}

void round_values(std::span<float> values, tensor::DType dtype) {
  if (dtype == tensor::DType::kF32) return;
  const auto n = std::ssize(values);
  std::vector<char> rounded(static_cast<size_t>(n * tensor::dtype_bytes(dtype)));
  tensor::convert_elements(tensor::DType::kF32, values.data(), dtype, rounded.data(), n);
  tensor::convert_elements(dtype, rounded.data(), tensor::DType::kF32, values.data(), n);
}

// Compares elements of one tensor in the checkpoint and in the store, rounded to the types of both.
void check_frozen_run(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                      const model::ParameterInfo& info, const model::ElementRun& run) {
  const std::string& name = info.parts[run.part].name;
  const tensor::DType saved_type = checkpoint.find(kFrozenSection, name)->dtype;
  for (int64_t done = 0; done < run.size; done += kConvertedAtOnce) {
    const int64_t n = std::min(kConvertedAtOnce, run.size - done), at = run.on_disk + done;
    std::vector<float> saved(static_cast<size_t>(n)), own(saved.size());
    read_f32(checkpoint, kFrozenSection, name, at, at + n, saved.data());
    store.read_weights(info, run.in_parameter + done, own.data(), n);
    round_values(saved, store.group_of(info).dtype);
    round_values(own, saved_type);
    const auto [differs, ours] = std::ranges::mismatch(saved, own);
    if (differs == saved.end()) continue;
    throw Error(ErrorCode::kInput,
                fmt::format("frozen tensor \"{0}\": element {2} is {1} in the checkpoint, but {3} "
                            "in the model folder",
                            name, *differs, at + (differs - saved.begin()), *ours),
                "resume with the model that the checkpoint was made from", checkpoint.directory());
  }
}

// Whether a frozen parameter is loaded from the checkpoint: the run may have started from other
// weights than those of the model's folder, and frozen parameters have no masters.
bool is_loaded_frozen(const model::ParameterInfo& info) {
  return !info.trainable && (info.moved_by_rule || info.frozen_by_name);
}

// Every rank reads its part of the parameters that `is_read` selects.
void load_weights_of(const io::Checkpoint& checkpoint, const char* section,
                     model::ParameterStore& store,
                     bool (*is_read)(const model::ParameterInfo& info)) {
  std::vector<float> values;
  for (const auto& info : store.infos()) {
    if (!is_read(info)) continue;
    check_tensors(checkpoint, info, section);
    for (const model::ElementRun& run : model::list_runs(info)) {
      const std::string& name = info.parts[run.part].name;
      for (int64_t done = 0; done < run.size; done += kConvertedAtOnce) {
        const int64_t n = std::min(kConvertedAtOnce, run.size - done), at = run.on_disk + done;
        values.resize(static_cast<size_t>(n));
        read_f32(checkpoint, section, name, at, at + n, values.data());
        store.write_weights(info, run.in_parameter + done, values.data(), n);
      }
    }
  }
}

}  // namespace

void check_frozen_weights(const io::Checkpoint& checkpoint, const model::ParameterStore& store,
                          const train::ShardedAdamW& optimizer) {
  for (const auto& info : store.infos()) {
    if (info.trainable || is_loaded_frozen(info)) continue;
    // Copies need no check: the rank that holds the original compares it, or the original is
    // trained.
    if (std::ranges::none_of(info.parts, &model::HfPart::is_counted)) continue;
    check_tensors(checkpoint, info, kFrozenSection);
    const auto& group = optimizer.groups()[static_cast<size_t>(info.group)];
    for (const Overlap& o : list_overlaps(info, group.pieces))
      for (const model::ElementRun& run : model::list_runs(info, o.begin, o.end))
        check_frozen_run(checkpoint, store, info, run);
  }
}

void load_training_state(const io::Checkpoint& checkpoint, model::ParameterStore& store,
                         train::ShardedAdamW& optimizer) {
  load_weights_of(checkpoint, kFrozenSection, store, is_loaded_frozen);
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

bool has_reference(const io::Checkpoint& checkpoint) {
  return std::ranges::any_of(checkpoint.tensors(), [](const io::CheckpointTensor& tensor) {
    return tensor.section == kReferenceSection;
  });
}

void load_reference(const io::Checkpoint& checkpoint, model::ParameterStore& reference) {
  load_weights_of(checkpoint, kReferenceSection, reference,
                  [](const model::ParameterInfo&) { return true; });
}

}  // namespace slimexx::rl
