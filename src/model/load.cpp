// Weights from Hugging Face folders and sharded checkpoints into a store.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <set>
#include <span>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/layout.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::model {
namespace {

constexpr int64_t kChunkElements = 1 << 20;
constexpr size_t kMaxFaults = 20;

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

struct Faults {
  std::vector<std::string> lines;
  void throw_if_any(const std::string& where) const {
    if (lines.empty()) return;
    std::string text =
        fmt::format("{} fault{} in the weights:", lines.size(), lines.size() == 1 ? "" : "s");
    for (size_t i = 0; i < std::min(lines.size(), kMaxFaults); ++i) text += "\n    " + lines[i];
    if (lines.size() > kMaxFaults)
      text += fmt::format("\n    and {} more", lines.size() - kMaxFaults);
    throw Error(ErrorCode::kInput, text,
                "check that config.json belongs to these weights and that every file is whole",
                where);
  }
};

// A tensor on disk to read from: its element type, and elements [begin, end) of it.
struct Source {
  tensor::DType dtype = tensor::DType::kF32;
  std::function<void(int64_t begin, int64_t end, void* out)> read;
};

// Values that are not finite, in one tensor.
struct BadValues {
  int64_t count = 0, first = -1;
};

void find_bad_values(std::span<const float> values, int64_t on_disk, BadValues& bad) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    const int64_t at = on_disk + static_cast<int64_t>(i);
    bad.first = bad.count++ == 0 ? at : std::min(bad.first, at);
  }
}

// Fills a parameter from a source for each of its parts, a chunk of the parameter at a time.
void read_parameter(const ParameterInfo& info, std::span<const Source> sources,
                    ParameterStore& store, Faults& faults) {
  std::vector<char> raw;
  std::vector<float> values(static_cast<size_t>(std::min(info.num_elements(), kChunkElements)));
  std::vector<BadValues> bad(info.parts.size());
  int64_t begin = 0, end = 0;  // of the chunk that `values` holds
  const auto flush = [&] {
    store.write_weights(info, begin, values.data(), end - begin);
    begin = end;
  };
  for (const ElementRun& run : list_runs(info)) {
    for (int64_t done = 0; done < run.size;) {
      const int64_t n = std::min(run.size - done, begin + kChunkElements - end);
      const Source& source = sources[run.part];
      raw.resize(static_cast<size_t>(n * tensor::dtype_bytes(source.dtype)));
      source.read(run.on_disk + done, run.on_disk + done + n, raw.data());
      const std::span<float> to =
          std::span(values).subspan(static_cast<size_t>(end - begin), static_cast<size_t>(n));
      tensor::convert_elements(source.dtype, raw.data(), tensor::DType::kF32, to.data(), n);
      find_bad_values(to, run.on_disk + done, bad[run.part]);
      done += n;
      end += n;
      if (end - begin == kChunkElements) flush();
    }
  }
  if (end > begin) flush();
  for (size_t p = 0; p < bad.size(); ++p) {
    if (bad[p].count > 0)
      faults.lines.push_back(fmt::format("{}: {} values are NaN or infinite, first at element {}",
                                         info.parts[p].name, bad[p].count, bad[p].first));
  }
}

// A tensor of one tied to the embedding may be repeated on disk; then it must be the same bytes.
void check_tied_head(const io::HfFolder& folder, Faults& faults) {
  const auto* head = folder.find("lm_head.weight");
  const auto* embedding = folder.find("model.embed_tokens.weight");
  if (head == nullptr || embedding == nullptr) return;
  const auto differ = [&] {
    if (head->entry->dtype != embedding->entry->dtype ||
        head->entry->shape != embedding->entry->shape)
      return true;
    const auto n = head->entry->num_elements();
    std::vector<char> a(static_cast<size_t>(kChunkElements * 8)), b(a.size());
    for (int64_t begin = 0; begin < n; begin += kChunkElements) {
      const int64_t end = std::min(n, begin + kChunkElements);
      head->file->read(*head->entry, begin, end, a.data());
      embedding->file->read(*embedding->entry, begin, end, b.data());
      const auto bytes =
          static_cast<size_t>((end - begin) * tensor::dtype_bytes(head->entry->dtype));
      if (std::memcmp(a.data(), b.data(), bytes) != 0) return true;
    }
    return false;
  };
  if (differ())
    faults.lines.push_back(
        "lm_head.weight: tie_word_embeddings is true but it differs from the embedding");
}

// Buffers that checkpoints may carry and the model does not need.
bool is_ignorable(const std::string& name) {
  return name.find("rotary_emb.inv_freq") != std::string::npos;
}

}  // namespace

void load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                     const std::function<void(int64_t)>& on_loaded, const Layout* layout) {
  Faults faults;
  std::set<std::string> wanted;
  if (spec.tied_embeddings) wanted.insert("lm_head.weight");
  for (const auto& info : store.infos()) {
    std::vector<Source> sources;
    for (const auto& part : info.parts) {
      const bool is_new = wanted.insert(part.name).second;
      const auto* located = folder.find(part.name);
      std::string fault;
      if (located == nullptr) {
        fault = "missing";
      } else if (located->entry->shape != part.shape) {
        fault =
            fmt::format("shape {} in {}, config.json wants {}", shape_text(located->entry->shape),
                        located->file->path(), shape_text(part.shape));
      } else if (!tensor::is_convertible(located->entry->dtype)) {
        fault = fmt::format("dtype {} cannot be loaded as a dense weight",
                            tensor::dtype_name(located->entry->dtype));
      } else {
        sources.push_back({located->entry->dtype, [located](int64_t begin, int64_t end, void* out) {
                             located->file->read(*located->entry, begin, end, out);
                           }});
      }
      if (!fault.empty() && is_new) faults.lines.push_back(fmt::format("{}: {}", part.name, fault));
    }
    if (sources.size() < info.parts.size()) continue;
    read_parameter(info, sources, store, faults);
    if (on_loaded) on_loaded(info.num_elements());
  }
  if (layout != nullptr) {
    for (const auto& infos : layout->ranks)
      for (const auto& info : *infos)
        for (const auto& part : info.parts) wanted.insert(part.name);
  }
  for (const auto& name : folder.tensor_names()) {
    if (!wanted.contains(name) && !is_ignorable(name))
      faults.lines.push_back(fmt::format("{}: not a tensor of this model", name));
  }
  if (spec.tied_embeddings) check_tied_head(folder, faults);
  faults.throw_if_any(folder.directory());
}

void load_checkpoint_weights(ParameterStore& store, const io::Checkpoint& checkpoint) {
  Faults faults;
  for (const auto& info : store.infos()) {
    std::vector<Source> sources;
    for (const auto& part : info.parts) {
      const char* section = checkpoint.find("master", part.name) != nullptr ? "master" : "weights";
      const auto* entry = checkpoint.find(section, part.name);
      if (entry == nullptr) {
        faults.lines.push_back(fmt::format("{}: missing", part.name));
      } else if (entry->shape != part.shape || !tensor::is_convertible(entry->dtype)) {
        faults.lines.push_back(
            fmt::format("{}: shape {} {}, wanted {}", part.name, shape_text(entry->shape),
                        tensor::dtype_name(entry->dtype), shape_text(part.shape)));
      } else {
        sources.push_back({entry->dtype, [&, section](int64_t begin, int64_t end, void* out) {
                             checkpoint.read(section, part.name, begin, end, out);
                           }});
      }
    }
    if (sources.size() == info.parts.size()) read_parameter(info, sources, store, faults);
  }
  faults.throw_if_any(checkpoint.directory());
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
      pieces.push_back({section, info.parts[run.part].name, run.on_disk, run.on_disk + run.size,
                        at(run.in_parameter)});
    return;
  }
  for (const PartBox& box : boxes)
    pieces.push_back(
        {section, info.parts[box.part].name, 0, 0, at(box.in_parameter), box.on_disk, box.strides});
}

}  // namespace slimexx::model
