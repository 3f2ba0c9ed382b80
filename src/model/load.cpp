// Weights from Hugging Face folders and sharded checkpoints into a store.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/parameters.h"
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

// Reads a part through `read(begin, end, buffer)` into the store, counting values that are not
// finite.
template <class Read>
void read_part(tensor::DType dtype, const HfPart& part, const ParameterInfo& info,
               ParameterStore& store, Faults& faults, const Read& read) {
  const int64_t n = part.end - part.begin, chunk = std::min(n, kChunkElements);
  std::vector<char> raw(static_cast<size_t>(chunk * tensor::dtype_bytes(dtype)));
  std::vector<float> values(static_cast<size_t>(chunk));
  int64_t bad = 0, first_bad = -1;
  for (int64_t begin = 0; begin < n; begin += kChunkElements) {
    const int64_t end = std::min(n, begin + kChunkElements);
    read(begin, end, raw.data());
    tensor::convert_elements(dtype, raw.data(), tensor::DType::kF32, values.data(), end - begin);
    for (int64_t i = begin; i < end; ++i) {
      if (std::isfinite(values[static_cast<size_t>(i - begin)])) continue;
      if (bad++ == 0) first_bad = i;
    }
    store.write_weights(info, part.begin + begin, values.data(), end - begin);
  }
  if (bad > 0)
    faults.lines.push_back(fmt::format("{}: {} values are NaN or infinite, first at element {}",
                                       part.name, bad, first_bad));
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
                     const std::function<void(int64_t)>& on_loaded) {
  Faults faults;
  std::set<std::string> wanted;
  if (spec.tied_embeddings) wanted.insert("lm_head.weight");
  for (const auto& info : store.infos()) {
    for (const auto& part : info.parts) {
      wanted.insert(part.name);
      const auto* located = folder.find(part.name);
      if (located == nullptr) {
        faults.lines.push_back(fmt::format("{}: missing", part.name));
      } else if (located->entry->shape != part.shape) {
        faults.lines.push_back(fmt::format("{}: shape {} in {}, config.json wants {}", part.name,
                                           shape_text(located->entry->shape), located->file->path(),
                                           shape_text(part.shape)));
      } else if (!tensor::is_convertible(located->entry->dtype)) {
        faults.lines.push_back(fmt::format("{}: dtype {} cannot be loaded as a dense weight",
                                           part.name, tensor::dtype_name(located->entry->dtype)));
      } else {
        read_part(located->entry->dtype, part, info, store, faults,
                  [&](int64_t begin, int64_t end, void* out) {
                    located->file->read(*located->entry, begin, end, out);
                  });
        if (on_loaded) on_loaded(part.end - part.begin);
      }
    }
  }
  for (const auto& name : folder.tensor_names()) {
    if (!wanted.contains(name) && !is_ignorable(name))
      faults.lines.push_back(fmt::format("{}: not a tensor of this model", name));
  }
  if (spec.tied_embeddings) check_tied_head(folder, faults);
  faults.throw_if_any(folder.directory());
}

void load_checkpoint_weights(ParameterStore& store, const ModelSpec& spec,
                             const io::Checkpoint& checkpoint) {
  (void)spec;
  Faults faults;
  for (const auto& info : store.infos()) {
    for (const auto& part : info.parts) {
      const char* section = checkpoint.find("master", part.name) != nullptr ? "master" : "weights";
      const auto* entry = checkpoint.find(section, part.name);
      if (entry == nullptr || entry->shape != part.shape || !tensor::is_convertible(entry->dtype)) {
        faults.lines.push_back(
            entry == nullptr
                ? fmt::format("{}: missing", part.name)
                : fmt::format("{}: shape {} {}, wanted {}", part.name, shape_text(entry->shape),
                              tensor::dtype_name(entry->dtype), shape_text(part.shape)));
        continue;
      }
      read_part(entry->dtype, part, info, store, faults,
                [&](int64_t begin, int64_t end, void* out) {
                  checkpoint.read(section, part.name, begin, end, out);
                });
    }
  }
  faults.throw_if_any(checkpoint.directory());
}

}  // namespace slimexx::model
