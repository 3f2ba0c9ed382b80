#include "slimexx/model/load_hf.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <vector>

#include "model/weights/load_faults.h"
#include "model/weights/stored_tensors.h"
#include "slimexx/base/log.h"
#include "slimexx/dist/host.h"
#include "slimexx/dist/make_once.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/held_tensors.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {
namespace {

constexpr int64_t kCompareElements = 1 << 20;
constexpr const char* kHeadName = "lm_head.weight";

// With tied embeddings a file may still store the head. It must equal the embedding; headers tell
// only whether shape and type agree.
struct TiedPair {
  const io::HfFolder::Located *head = nullptr, *embedding = nullptr;
  bool is_stored() const { return head != nullptr && embedding != nullptr; }
  bool is_alike() const {
    return head->entry->dtype == embedding->entry->dtype &&
           head->entry->shape == embedding->entry->shape;
  }
};
TiedPair find_tied_pair(const ModelSpec& spec, const io::HfFolder& folder) {
  if (!spec.tied_embeddings) return {};
  return {folder.find(kHeadName), folder.find("model.embed_tokens.weight")};
}
void add_tied_fault(Faults& faults, const TiedPair& pair) {
  faults.lines.push_back(fmt::format(
      "{}: tie_word_embeddings is true, but this tensor differs from the embedding, in {}",
      kHeadName, pair.head->file->path()));
}

// Compares the values of the two tensors; each rank reads a share. Collective.
void check_tied_head(const TiedPair& pair, dist::Collective& host, Faults& faults) {
  if (!pair.is_stored()) return;
  const auto *head = pair.head, *embedding = pair.embedding;
  const auto differ = [&] {
    const dist::Range own =
        share_rows(0, head->entry->num_elements(), static_cast<size_t>(host.rank()),
                   static_cast<size_t>(host.size()));
    std::vector<char> a(static_cast<size_t>(kCompareElements * 8)), b(a.size());
    for (int64_t begin = own.begin; begin < own.end; begin += kCompareElements) {
      const int64_t end = std::min(own.end, begin + kCompareElements);
      head->file->read(*head->entry, begin, end, a.data());
      embedding->file->read(*embedding->entry, begin, end, b.data());
      const auto bytes =
          static_cast<size_t>((end - begin) * tensor::dtype_bytes(head->entry->dtype));
      if (std::memcmp(a.data(), b.data(), bytes) != 0) return true;
    }
    return false;
  };
  double found[1] = {differ() ? 1.0 : 0.0};
  dist::all_reduce_max(host, found);
  if (found[0] != 0) add_tied_fault(faults, pair);
}

// The tensors that the ranks of one host read, and where they are stored. All of these ranks have
// the same list.
struct LoadList {
  HeldTensors held;
  StoredTensors stored;
  Faults header_faults;
};

WantedTensors list_wanted(const HeldTensors& held, const Layout* layout) {
  WantedTensors wanted;
  for (const auto& [name, tensor] : held.by_name) wanted.emplace(name, tensor.shape);
  if (layout == nullptr) return wanted;
  std::set<const std::vector<ParameterInfo>*> seen;  // replicas share their list
  for (const auto& infos : layout->ranks) {
    if (!seen.insert(infos.get()).second) continue;
    for (const auto& info : *infos)
      for (const auto& part : info.parts) wanted.emplace(part.name, part.shape);
  }
  return wanted;
}

// Returns N for a name "model.layers.N. ..." whose layer N comes after the model's last layer.
std::optional<int64_t> layer_after_last(const ModelSpec& spec, std::string_view name) {
  constexpr std::string_view kLayers = "model.layers.";
  if (!name.starts_with(kLayers)) return std::nullopt;
  const char* begin = name.data() + kLayers.size();
  int64_t layer = 0;
  const auto end = std::from_chars(begin, name.data() + name.size(), layer);
  if (end.ec != std::errc() || end.ptr == name.data() + name.size() || *end.ptr != '.' ||
      layer < spec.num_layers() + std::ssize(spec.mtp))
    return std::nullopt;
  return layer;
}

// A layer in the folder that the model does not have; reported in one line.
struct LayerBehindLast {
  int64_t num_tensors = 0;
  bool joins_embedding = false;  // the layer has the input projection of an MTP layer
};
std::string explain_layer(const ModelSpec& spec, int64_t layer, const LayerBehindLast& found) {
  const std::string tensors = fmt::format(
      "model.layers.{}.*: {} tensors of a layer after the last one", layer, found.num_tensors);
  const int64_t num_named = std::ssize(spec.mtp) + spec.num_missing_mtp;
  if (found.joins_embedding && layer < spec.num_layers() + num_named)
    return fmt::format(
        "{}: this is an MTP layer, but model.layers.{}.eh_proj.weight of the layer before it is "
        "missing (config.json has num_nextn_predict_layers {})",
        tensors, spec.num_layers() + std::ssize(spec.mtp), num_named);
  if (found.joins_embedding)
    return fmt::format("{}: this is an MTP layer, but config.json has num_nextn_predict_layers {}",
                       tensors, num_named);
  return fmt::format(
      "{}: num_hidden_layers is {}, and model.layers.{}.eh_proj.weight, which an MTP layer needs, "
      "is missing",
      tensors, spec.num_layers(), layer);
}

std::vector<std::string> explain_unused(const ModelSpec& spec, const StoredTensors& stored) {
  std::vector<std::string> lines;
  std::map<int64_t, LayerBehindLast> layers;
  for (const std::string& name : stored.list_unused()) {
    if (spec.tied_embeddings && name == kHeadName) continue;
    if (const auto layer = layer_after_last(spec, name)) {
      ++layers[*layer].num_tensors;
      if (name.ends_with(".eh_proj.weight")) layers[*layer].joins_embedding = true;
    } else {
      lines.push_back(fmt::format("{}: {}", name_text(name), stored.explain_unused(name)));
    }
  }
  for (const auto& [layer, found] : layers) lines.push_back(explain_layer(spec, layer, found));
  return lines;
}

// Faults that the headers show; the same on all ranks.
Faults list_header_faults(const ModelSpec& spec, const io::HfFolder& folder,
                          const StoredTensors& stored) {
  Faults faults{stored.list_faults()};
  for (std::string& line : explain_unused(spec, stored)) faults.lines.push_back(std::move(line));
  const TiedPair pair = find_tied_pair(spec, folder);
  if (pair.is_stored() && !pair.is_alike()) add_tied_fault(faults, pair);
  return faults;
}

// Counts invalid scales of an FP8 tensor. A scale of 0 erases its block, a negative one flips its
// sign.
struct ScaleSigns {
  int64_t num_negative = 0, num_zero = 0;
};
struct FoundValues {
  BadValues bad;
  ScaleSigns signs;
};

void report_scales(const std::string& tensor, const ScaleSigns& signs, bool is_first_rank,
                   Faults& faults) {
  if (signs.num_negative > 0)
    faults.lines.push_back(
        fmt::format("{}: {} of its FP8 scales are below 0", tensor, signs.num_negative));
  if (signs.num_zero > 0 && is_first_rank)
    log_warn("{}: {} of its FP8 scales are 0, so the values that they scale are 0 too", tensor,
             signs.num_zero);
}

// Reads the tensors that the ranks of a host hold, and fills this rank's store.
class HostLoader {
 public:
  // All arguments except `on_loaded` must outlive the loader.
  HostLoader(ParameterStore& store, const HostRanks& host, const HeldTensors& tensors,
             const std::function<void(int64_t)>& on_loaded)
      : store_(store),
        host_(host),
        tensors_(tensors),
        own_(host.ranks.rank()),
        on_loaded_(on_loaded) {}

  void load(const StoredTensor& stored, const HeldTensor& tensor) {
    bad_.emplace_back();
    scale_signs_.emplace_back();
    scales_ = holds(tensor) ? stored.read_scales() : std::vector<float>();
    for (const float scale : scales_) {
      scale_signs_.back().num_negative += scale < 0 ? 1 : 0;
      scale_signs_.back().num_zero += scale == 0 ? 1 : 0;
    }
    for (const HeldBox& held : tensor.boxes) {
      const int64_t rows = held.box.end[0] - held.box.begin[0];
      const int64_t step =
          std::max<int64_t>(1, host_.piece_elements /
                                   (tensor::count_elements(held.box) / std::max<int64_t>(1, rows)));
      for (int64_t begin = 0; begin < rows; begin += step)
        load_rows(stored, tensor, held, {begin, std::min(rows, begin + step)});
    }
  }
  int64_t read_bytes() const { return read_bytes_; }
  // The bad values that all ranks found, per loaded tensor in loading order. Collective.
  std::vector<FoundValues> gather_bad_values() const {
    std::string own;  // only tensors with bad values, to keep the message small
    for (size_t i = 0; i < bad_.size(); ++i) {
      const BadTensor bad{i, bad_[i], scale_signs_[i]};
      if (bad.values.count > 0 || bad.signs.num_negative > 0 || bad.signs.num_zero > 0)
        own.append(reinterpret_cast<const char*>(&bad), sizeof(bad));
    }
    std::vector<FoundValues> sum(bad_.size());
    for (const std::string& bytes : dist::all_gather_bytes(host_.ranks, own)) {
      for (size_t at = 0; at < bytes.size(); at += sizeof(BadTensor)) {
        BadTensor bad;
        std::memcpy(&bad, bytes.data() + at, sizeof(bad));
        FoundValues& found = sum.at(bad.tensor);
        found.bad.add(bad.values);
        // All ranks that hold parts of a tensor read all its scales, so take the maximum.
        found.signs.num_negative = std::max(found.signs.num_negative, bad.signs.num_negative);
        found.signs.num_zero = std::max(found.signs.num_zero, bad.signs.num_zero);
      }
    }
    return sum;
  }

 private:
  struct BadTensor {
    size_t tensor = 0;
    BadValues values;
    ScaleSigns signs;
  };

  bool holds(const HeldTensor& tensor) const {
    const int list = tensors_.list_of_rank[static_cast<size_t>(own_)];
    return std::ranges::any_of(
        tensor.boxes, [&](const HeldBox& held) { return find_place(held, list) != nullptr; });
  }

  void load_rows(const StoredTensor& stored, const HeldTensor& tensor, const HeldBox& held,
                 dist::Range rows) {
    const Holder own = find_holder(tensors_, held, own_);
    const bool is_alone = own.count == 1, is_holder = own.place != nullptr;
    if (is_alone && !is_holder) return;
    const auto share_of = [&](size_t holder) {
      return share_rows(rows.begin, rows.end, holder, own.count);
    };
    const int64_t row_elements = tensor::count_elements(cut_rows(held.box, {0, 1}));
    const int64_t row_bytes = row_elements * tensor::dtype_bytes(stored.dtype());
    std::vector<int64_t> sends(host_.held.ranks.size(), 0), receives(sends);
    for (size_t i = 0; i < own.count && is_holder; ++i) {
      const auto rank = static_cast<size_t>((*held.holders)[i]);
      sends[rank] = share_of(own.index).size() * row_bytes;
      receives[rank] = share_of(i).size() * row_bytes;
    }
    piece_.clear();
    if (is_holder) read(stored, tensor, cut_rows(held.box, share_of(own.index)));
    if (!is_alone) pass_on(sends, receives);
    if (!is_holder) return;
    const tensor::Box box = cut_rows(held.box, rows);
    values_.resize(static_cast<size_t>(tensor::count_elements(box)));
    stored.convert(box, scales_, piece_.data(), values_.data());
    check(tensor, cut_rows(held.box, share_of(own.index)),
          (share_of(own.index).begin - rows.begin) * row_elements);
    place(stored, box, place_inside(*own.place, held.box, box));
  }

  // Calls visit(element on disk, element of the box in row-major order, count).
  template <class Visit>
  static void for_each_run(const HeldTensor& tensor, const tensor::Box& box, const Visit& visit) {
    const auto extents = tensor::extents_of(box);
    const auto disk = tensor::strides_of(tensor.shape);
    int64_t first = 0;
    for (size_t d = 0; d < disk.size(); ++d) first += box.begin[d] * disk[d];
    for (const auto& run : tensor::list_runs(extents, disk, tensor::strides_of(extents)))
      visit(first + run.from, run.to, run.size);
  }

  // Reads into piece_, in the file's dtype.
  void read(const StoredTensor& stored, const HeldTensor& tensor, const tensor::Box& box) {
    const int64_t width = tensor::dtype_bytes(stored.dtype());
    piece_.resize(static_cast<size_t>(tensor::count_elements(box) * width));
    for_each_run(tensor, box, [&](int64_t on_disk, int64_t in_box, int64_t n) {
      stored.read(on_disk, on_disk + n, piece_.data() + in_box * width);
    });
    read_bytes_ += std::ssize(piece_);
  }

  // Checks the values that this rank read: those in values_, which start at element `first` of the
  // box.
  void check(const HeldTensor& tensor, const tensor::Box& box, int64_t first) {
    const std::span<const float> values(values_);
    for_each_run(tensor, box, [&](int64_t on_disk, int64_t in_box, int64_t n) {
      bad_.back().add(values.subspan(static_cast<size_t>(first + in_box), static_cast<size_t>(n)),
                      on_disk);
    });
  }

  // Sends this rank's share to all holders; afterwards piece_ has the shares of all ranks.
  void pass_on(const std::vector<int64_t>& sends, const std::vector<int64_t>& receives) {
    std::vector<char> copies, all;
    for (const int64_t bytes : sends)
      if (bytes > 0) copies.insert(copies.end(), piece_.begin(), piece_.end());
    int64_t total = 0;
    for (const int64_t bytes : receives) total += bytes;
    all.resize(static_cast<size_t>(total));
    host_.ranks.all_to_all(
        {}, tensor::Tensor(all.data(), tensor::DType::kU8, {}, {total}),
        tensor::Tensor(copies.data(), tensor::DType::kU8, {}, {std::ssize(copies)}), sends,
        receives);
    piece_.swap(all);
  }

  // Copies the box, which piece_ and values_ hold in row-major order, to its place in the store: as
  // bytes if the file has the parameter's type.
  void place(const StoredTensor& stored, const tensor::Box& box, const BoxPlace& to) {
    const ParameterInfo& info = store_.infos()[static_cast<size_t>(to.parameter)];
    const bool as_bytes = stored.dtype() == store_.group_of(info).dtype && !stored.scales;
    const int64_t width = tensor::dtype_bytes(stored.dtype());
    const auto extents = tensor::extents_of(box);
    for (const auto& run : tensor::list_runs(extents, tensor::strides_of(extents), to.strides)) {
      if (as_bytes)
        store_.write_bytes(info, to.begin + run.to, piece_.data() + run.from * width, run.size);
      else
        store_.write_weights(info, to.begin + run.to, values_.data() + run.from, run.size);
    }
    if (on_loaded_) on_loaded_(std::ssize(values_));
  }

  ParameterStore& store_;
  const HostRanks& host_;
  const HeldTensors& tensors_;
  const int own_;
  const std::function<void(int64_t)>& on_loaded_;
  std::vector<char> piece_;
  std::vector<float> values_;
  std::vector<float> scales_;   // scales of the tensor in loading
  std::vector<BadValues> bad_;  // by tensor
  std::vector<ScaleSigns> scale_signs_;
  int64_t read_bytes_ = 0;
};

}  // namespace

void check_hf_headers(const ModelSpec& spec, const io::HfFolder& folder, const Layout& layout) {
  const StoredTensors stored(folder, list_wanted({}, &layout));
  list_header_faults(spec, folder, stored).throw_if_any(folder.directory());
}

void load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                     const std::function<void(int64_t)>& on_loaded, const Layout* layout) {
  dist::Collective one;
  const Layout held{{std::make_shared<const std::vector<ParameterInfo>>(store.infos())}};
  load_hf_weights(store, spec, folder, on_loaded, layout, HostRanks{one, held});
}

int64_t load_hf_weights(ParameterStore& store, const ModelSpec& spec, const io::HfFolder& folder,
                        const std::function<void(int64_t)>& on_loaded, const Layout* layout,
                        const HostRanks& host) {
  const auto list = dist::make_once(host.ranks, [&] {
    HeldTensors held = list_held_tensors(host.held);
    StoredTensors stored(folder, list_wanted(held, layout));
    Faults faults = list_header_faults(spec, folder, stored);
    return LoadList{std::move(held), std::move(stored), std::move(faults)};
  });
  list->header_faults.throw_if_any(folder.directory());
  list->stored.log_quantization(spec.checkpoint_dtype);
  HostLoader loader(store, host, list->held, on_loaded);
  std::vector<std::string> loaded;
  for (const auto& [name, tensor] : list->held.by_name) {
    loader.load(list->stored.find(name), tensor);
    loaded.push_back(name);
  }
  Faults faults;
  const std::vector<FoundValues> found = loader.gather_bad_values();
  for (size_t i = 0; i < found.size(); ++i) {
    add_fault(faults, loaded[i], found[i].bad, list->stored.find(loaded[i]).located.file->path());
    report_scales(loaded[i], found[i].signs, host.ranks.rank() == 0, faults);
  }
  check_tied_head(find_tied_pair(spec, folder), host.ranks, faults);
  faults.throw_if_any(folder.directory());
  return loader.read_bytes();
}

}  // namespace slimexx::model
