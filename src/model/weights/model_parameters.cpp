// The parameters of a model or stage, in store order, and the views that blocks compute with.
#include <fmt/format.h>

#include <algorithm>

#include "model/weights/parameter_list.h"
#include "slimexx/base/check.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/encoding.h"
#include "slimexx/model/families.h"
#include "slimexx/model/stages.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::model {
namespace {

// Freezes parameters from index `begin` on: exports write them as they were loaded.
void freeze(ParameterList& list, size_t begin) {
  for (size_t i = begin; i < list.infos.size(); ++i) list.infos[i].trainable = false;
}

void freeze_by_name(ParameterList& list, const ModelSpec& spec) {
  for (ParameterInfo& info : list.infos) {
    if (!info.trainable || !std::ranges::binary_search(spec.frozen, info.name)) continue;
    info.trainable = false;
    info.frozen_by_name = true;
  }
}

// Whether the tensor is an MTP layer's copy of embedding or head. The trainer rewrites these copies
// after its updates.
bool is_copied(const ModelSpec& spec, const std::string& hf_name) {
  for (int64_t i = 0; i < spec.num_trained_mtp(); ++i) {
    const std::string hf = fmt::format("model.layers.{}.", spec.num_layers() + i);
    if (hf_name == hf + "embed_tokens.weight" || hf_name == hf + "shared_head.head.weight")
      return true;
  }
  return false;
}

void mark_encoded(ParameterList& list, const ModelSpec& spec) {
  if (spec.encoding == nullptr) return;
  for (ParameterInfo& info : list.infos)
    if (std::ranges::binary_search(spec.encoded, info.name)) info.encoding = spec.encoding;
}

void set_export_dtypes(ParameterList& list, const ModelSpec& spec) {
  for (ParameterInfo& info : list.infos) {
    for (HfPart& part : info.parts) {
      const auto kept = spec.kept_dtypes.find(part.name);
      part.dtype = kept != spec.kept_dtypes.end() ? kept->second
                                                  : info.dtype.value_or(spec.checkpoint_dtype);
    }
  }
}

bool is_in_untrained_mtp(const ModelSpec& spec, const ParameterInfo& info) {
  for (int64_t i = spec.num_trained_mtp(); i < std::ssize(spec.mtp); ++i)
    if (info.name.starts_with(fmt::format("layers.{}.", spec.num_layers() + i))) return true;
  return false;
}

// Calls visit(info, part, dtype in the folder) for the tensors that no step changes.
template <class Visit>
void for_each_unchanged(const ModelSpec& spec, const io::HfFolder& folder, bool moves_biases,
                        const Visit& visit) {
  for (const ParameterInfo& info : list_parameters(spec)) {
    const bool is_moved = moves_biases && info.moved_by_rule && !is_in_untrained_mtp(spec, info);
    if (info.trainable || is_moved) continue;
    for (const HfPart& part : info.parts) {
      const auto* located = folder.find(part.name);
      if (located == nullptr || !tensor::is_convertible(located->entry->dtype) ||
          is_copied(spec, part.name))
        continue;
      visit(info, part, located->entry->dtype);
    }
  }
}

// Whether converting `from` to `to` can change values.
bool is_rounded(tensor::DType from, tensor::DType to) {
  using tensor::DType;
  if (from == to || to == DType::kF64) return false;
  return from == DType::kF64 || to != DType::kF32;
}

// An untrained MTP layer is frozen. Its copies of embedding and head are always frozen: for a
// trained layer they are rewritten after updates (train/passes/mtp_copies.h).
MtpParameters<ParameterId> declare_mtp(ParameterList& list, const ModelSpec& spec,
                                       const MtpSpec& mtp, int64_t index) {
  const size_t begin = list.infos.size();
  const int64_t h = spec.hidden_size;
  const std::string own = fmt::format("layers.{}.", index);
  const std::string hf = fmt::format("model.layers.{}.", index);
  MtpParameters<ParameterId> p;
  p.embedding_norm = list.add_norm(own + "embedding_norm.weight", hf + "enorm.weight", h);
  p.hidden_norm = list.add_norm(own + "hidden_norm.weight", hf + "hnorm.weight", h);
  p.input = list.add_weight(own + "input.weight", {{hf + "eh_proj.weight", h}}, 2 * h, {});
  p.layer = declare(list, spec, mtp.layer, index);
  p.final_norm = list.add_norm(own + "final_norm.weight", hf + "shared_head.norm.weight", h);
  const size_t copies = list.infos.size();
  const Shard by_row{.axis = 0};
  if (mtp.has_own_embedding)
    list.add_weight(own + "embedding.weight", {{hf + "embed_tokens.weight", spec.vocab_size}}, h,
                    {by_row}, InitKind::kEmbedding);
  if (mtp.has_own_head)
    list.add_weight(own + "head.weight", {{hf + "shared_head.head.weight", spec.vocab_size}}, h,
                    {by_row});
  freeze(list, mtp.is_trained ? copies : begin);
  return p;
}

StageParameters<ParameterId> declare_stage(ParameterList& list, const ModelSpec& spec,
                                           const StageRange& stage) {
  const EmbeddingSpec embedding{.hidden_size = spec.hidden_size,
                                .vocab_size = spec.vocab_size,
                                .is_head_too = spec.tied_embeddings && stage.has_head};
  StageParameters<ParameterId> p{.embedding = kNoParameter};
  if (stage.has_embedding || holds_embedding_copy(spec, stage)) {
    p.embedding = declare(list, embedding);
    if (!stage.has_embedding) {
      ParameterInfo& copy = list.infos.back();
      copy.trainable = spec.tied_embeddings;
      for (HfPart& part : copy.parts) part.is_counted = false;
    }
  }
  for (int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
    p.layers.push_back(declare(list, spec, spec.layer(layer), layer));
  p.head = {kNoParameter, kNoParameter};
  if (stage.has_head)
    p.head = declare(list, spec.head(), spec.tied_embeddings ? p.embedding : kNoParameter);
  for (size_t i = 0; i < spec.mtp.size() && stage.has_head; ++i)
    p.mtp.push_back(
        declare_mtp(list, spec, spec.mtp[i], spec.num_layers() + static_cast<int64_t>(i)));
  freeze_by_name(list, spec);
  set_export_dtypes(list, spec);
  mark_encoded(list, spec);
  return p;
}

template <class View>
struct Binder {
  View view;  // ParameterId -> Tensor, LinearIds -> ops::Linear

  LayerParameters<Tensor> operator()(const LayerParameters<ParameterId>& p) const {
    LayerParameters<Tensor> bound{.input_norm = view(p.input_norm),
                                  .post_attention_norm = view(p.post_attention_norm),
                                  .mlp_norm = view(p.mlp_norm),
                                  .post_mlp_norm = view(p.post_mlp_norm),
                                  .attention = {},
                                  .mlp = {}};
    std::visit([&](const auto& block) { bound.attention = bind(block, view); }, p.attention);
    std::visit([&](const auto& block) { bound.mlp = bind(block, view); }, p.mlp);
    return bound;
  }
  MtpParameters<Tensor> operator()(const MtpParameters<ParameterId>& p) const {
    return {view(p.embedding_norm), view(p.hidden_norm), view(p.input), (*this)(p.layer),
            view(p.final_norm)};
  }
};

// Views of the parameters in a list, by name.
template <class View>
struct NamedView {
  const std::vector<ParameterInfo>& infos;
  const View& view;  // name -> ops::Linear without a bias

  Tensor operator()(ParameterId id) const { return linear(id).weight; }
  ops::Linear operator()(const LinearIds& ids) const {
    ops::Linear w = linear(ids.weight);
    w.bias = (*this)(ids.bias);
    return w;
  }
  ops::Linear linear(ParameterId id) const {
    return id == kNoParameter ? ops::Linear{} : view(infos[static_cast<size_t>(id)].name);
  }
};

// Finds the parameter by name: a store may hold several stages of one rank.
ParameterId find_held(const ParameterStore& store, const std::string& name) {
  const ParameterId id = store.find(name);
  SLX_CHECK(id != kNoParameter, "the store has no parameter {}", name);
  return id;
}

// The forms of a parameter that the products of `spec` read. If training and engines share a store
// whose encoding is only for engines, the two forms have different values.
ops::Linear read_form(const ParameterStore& store, const ModelSpec& spec, ParameterId id) {
  const ops::Linear held = store.linear(id);
  if (!held.is_fp8() || !store.info(id).encoding->is_for_engines) return held;
  if (spec.encoding->is_for_engines) return {.weight = held.weight};
  return {.values = held.values, .scales = held.scales};
}

template <class View>
ModelParameters bind(const ModelSpec& spec, const StageRange& stage, const View& view) {
  ParameterList list;
  list.keeps_parts = false;
  const StageParameters<ParameterId> ids = declare_stage(list, spec, stage);
  const NamedView<View> named{list.infos, view};
  ModelParameters p{.embedding = named(ids.embedding)};
  const Binder<NamedView<View>> binder{named};
  for (const auto& layer : ids.layers) p.layers.push_back(binder(layer));
  p.head = {.final_norm = named(ids.head.final_norm), .lm_head = named(ids.head.lm_head)};
  for (const auto& mtp : ids.mtp) p.mtp.push_back(binder(mtp));
  return p;
}

}  // namespace

void drop_missing_mtp(ModelSpec& spec, const std::function<bool(const std::string&)>& has_tensor) {
  for (size_t i = 0; i < spec.mtp.size(); ++i) {
    const std::string hf = fmt::format("model.layers.{}.", spec.layers.size() + i);
    if (!has_tensor(hf + "eh_proj.weight")) {
      spec.num_missing_mtp = std::ssize(spec.mtp) - static_cast<int64_t>(i);
      spec.mtp.resize(i);
      return;
    }
    spec.mtp[i].has_own_embedding = has_tensor(hf + "embed_tokens.weight");
    spec.mtp[i].has_own_head = has_tensor(hf + "shared_head.head.weight");
  }
}

void drop_missing_mtp(ModelSpec& spec, const io::HfFolder& folder) {
  if (!folder.has_tensors()) return;
  drop_missing_mtp(spec, [&](const std::string& name) { return folder.find(name) != nullptr; });
}

void take_stored_dtype(ModelSpec& spec, const io::HfFolder& folder) {
  const auto* embedding = folder.find("model.embed_tokens.weight");
  if (names_dtype(folder.config()) || embedding == nullptr) return;
  const tensor::DType dtype = embedding->entry->dtype;
  if (tensor::is_convertible(dtype)) spec.checkpoint_dtype = dtype;
}

std::map<std::string, tensor::DType> list_kept_dtypes(const ModelSpec& spec,
                                                      const io::HfFolder& folder,
                                                      bool moves_biases) {
  std::map<std::string, tensor::DType> kept;
  for_each_unchanged(spec, folder, moves_biases,
                     [&](const ParameterInfo&, const HfPart& part, tensor::DType stored) {
                       if (stored != part.dtype) kept.emplace(part.name, stored);
                     });
  return kept;
}

std::vector<std::string> list_rounded(const ModelSpec& spec, const io::HfFolder& folder,
                                      tensor::DType compute_dtype) {
  std::vector<std::string> names;
  for_each_unchanged(spec, folder, /*moves_biases=*/false,
                     [&](const ParameterInfo& info, const HfPart& part, tensor::DType stored) {
                       if (is_rounded(stored, info.dtype.value_or(compute_dtype)))
                         names.push_back(part.name);
                     });
  return names;
}

std::vector<ParameterInfo> list_parameters(const ModelSpec& spec, const StageRange& stage) {
  ParameterList list;
  declare_stage(list, spec, stage);
  return list.infos;
}

std::vector<ParameterInfo> list_parameters(const ModelSpec& spec,
                                           std::span<const StageRange> stages) {
  ParameterList list;
  for (const StageRange& stage : stages) declare_stage(list, spec, stage);
  return list.infos;
}

std::vector<ParameterInfo> list_parameters(const ModelSpec& spec) {
  return list_parameters(spec, whole_model(spec));
}

ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec,
                             const StageRange& stage) {
  return bind(spec, stage, [&](const std::string& name) {
    return read_form(store, spec, find_held(store, name));
  });
}

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec,
                               const StageRange& stage) {
  return bind(spec, stage, [&](const std::string& name) {
    return ops::Linear{.weight = store.gradient(find_held(store, name))};
  });
}

ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec) {
  return bind_weights(store, spec, whole_model(spec));
}

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec) {
  return bind_gradients(store, spec, whole_model(spec));
}

}  // namespace slimexx::model
