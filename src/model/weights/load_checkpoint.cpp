// Loads weights from sharded checkpoints into a store, and adds a store's weights to a checkpoint.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <span>
#include <string_view>
#include <vector>

#include "model/weights/load_faults.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/io/tensor_list.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/parameters.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::model {
namespace {

constexpr int64_t kChunkElements = 1 << 20;

// Fills a parameter in chunks. sources[i] is the tensor on disk for part i.
void read_parameter(const ParameterInfo& info, std::span<const io::HfTensor> sources,
                    ParameterStore& store, Faults& faults) {
  std::vector<char> raw;
  std::vector<float> values(static_cast<size_t>(std::min(info.num_elements(), kChunkElements)));
  std::vector<BadValues> bad(info.parts.size());
  int64_t begin = 0, end = 0;  // range of elements in `values`
  const auto flush = [&] {
    store.write_weights(info, begin, values.data(), end - begin);
    begin = end;
  };
  for (const ElementRun& run : list_runs(info)) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t n = std::min(run.size - done, begin + kChunkElements - end);
      const io::HfTensor& source = sources[run.part];
      raw.resize(static_cast<size_t>(n * tensor::dtype_bytes(source.dtype)));
      source.read(run.on_disk + done, run.on_disk + done + n, raw.data());
      const std::span<float> to =
          std::span(values).subspan(static_cast<size_t>(end - begin), static_cast<size_t>(n));
      tensor::convert_elements(source.dtype, raw.data(), tensor::DType::kF32, to.data(), n);
      bad[run.part].add(to, run.on_disk + done);
      done += n;
      end += n;
      if (end - begin == kChunkElements) flush();
    }
  }
  if (end > begin) flush();
  for (size_t p = 0; p < bad.size(); ++p) add_fault(faults, info.parts[p].name, bad[p]);
}

void load_tensors(ParameterStore& store, const io::TensorList& tensors,
                  const std::string& directory) {
  std::map<std::string_view, const io::HfTensor*> by_name;
  for (const io::HfTensor& tensor : tensors) by_name[tensor.name] = &tensor;
  Faults faults;
  for (const auto& info : store.infos()) {
    std::vector<io::HfTensor> sources;
    for (const auto& part : info.parts) {
      const auto found = by_name.find(part.name);
      if (found == by_name.end()) {
        faults.lines.push_back(fmt::format("{}: missing", part.name));
        continue;
      }
      const io::HfTensor& tensor = *found->second;
      if (tensor.dtype == tensor::DType::kF8E4M3) {
        faults.lines.push_back(fmt::format(
            "{}: FP8 is read from Hugging Face folders only: use convert-hf --to hf", part.name));
      } else if (tensor.shape != part.shape || !tensor::is_convertible(tensor.dtype)) {
        faults.lines.push_back(
            fmt::format("{}: shape {} {}, expected {}", part.name, shape_text(tensor.shape),
                        tensor::dtype_name(tensor.dtype), shape_text(part.shape)));
      } else {
        sources.push_back(tensor);
      }
    }
    if (sources.size() == info.parts.size()) read_parameter(info, sources, store, faults);
  }
  faults.throw_if_any(directory);
}

}  // namespace

void load_checkpoint_weights(ParameterStore& store, const io::Checkpoint& checkpoint) {
  load_tensors(store, io::list_exact_weights(checkpoint), checkpoint.directory());
}

void load_exported_weights(ParameterStore& store, const io::Checkpoint& checkpoint,
                           tensor::DType config_dtype) {
  load_tensors(store, io::list_weights(checkpoint, config_dtype), checkpoint.directory());
}

void add_checkpoint_pieces(const ParameterInfo& info, int64_t begin, int64_t end,
                           const std::string& section, tensor::DType dtype, const void* values,
                           std::vector<io::CheckpointPiece>& pieces) {
  const auto at = [&](int64_t element) {
    return static_cast<const char*>(values) + element * tensor::dtype_bytes(dtype);
  };
  const auto runs = list_runs(info, begin, end);
  const auto boxes = list_boxes(info, begin, end);
  if (runs.size() <= boxes.size()) {
    for (const ElementRun& run : runs)
      if (info.parts[run.part].is_counted)
        pieces.push_back({section, info.parts[run.part].name, run.on_disk, run.on_disk + run.size,
                          at(run.in_parameter)});
    return;
  }
  for (const PartBox& box : boxes)
    if (info.parts[box.part].is_counted)
      pieces.push_back({section, info.parts[box.part].name, 0, 0, at(box.in_parameter), box.on_disk,
                        box.strides});
}

}  // namespace slimexx::model
