// The parameters of a model or stage, in store order, and the views that blocks compute with.
#include "model/parameter_list.h"
#include "slimexx/model/decoder.h"
#include "slimexx/model/families.h"

namespace slimexx::model {
namespace {

StageParameters<ParameterId> declare_stage(ParameterList& list, const ModelSpec& spec,
                                           const StageRange& stage) {
  const EmbeddingSpec embedding{.hidden_size = spec.hidden_size,
                                .vocab_size = spec.vocab_size,
                                .is_head_too = spec.tied_embeddings && stage.has_head};
  StageParameters<ParameterId> p{.embedding = kNoParameter};
  const bool needs_table = stage.has_embedding || (stage.has_head && spec.tied_embeddings);
  if (needs_table) p.embedding = declare(list, embedding);
  for (int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer)
    p.layers.push_back(declare(list, spec, layer));
  p.head = {kNoParameter, kNoParameter};
  if (stage.has_head)
    p.head = declare(list, spec.head(), spec.tied_embeddings ? p.embedding : kNoParameter);
  return p;
}

template <class View>
struct Binder {
  View view;  // ParameterId -> Tensor

  GqaParameters<Tensor> operator()(const GqaParameters<ParameterId>& p) const {
    return {view(p.qkv_weight), view(p.qkv_bias), view(p.q_norm),
            view(p.k_norm),     view(p.o_weight), view(p.o_bias)};
  }
  DenseMlpParameters<Tensor> operator()(const DenseMlpParameters<ParameterId>& p) const {
    return {view(p.gate_up_weight), view(p.gate_up_bias), view(p.down_weight), view(p.down_bias)};
  }
  LayerParameters<Tensor> operator()(const LayerParameters<ParameterId>& p) const {
    LayerParameters<Tensor> bound{.input_norm = view(p.input_norm),
                                  .post_attention_norm = view(p.post_attention_norm),
                                  .mlp_norm = view(p.mlp_norm),
                                  .post_mlp_norm = view(p.post_mlp_norm),
                                  .attention = {},
                                  .mlp = {}};
    std::visit([&](const auto& block) { bound.attention = (*this)(block); }, p.attention);
    std::visit([&](const auto& block) { bound.mlp = (*this)(block); }, p.mlp);
    return bound;
  }
};

template <class View>
ModelParameters bind(const ModelSpec& spec, const StageRange& stage, const View& view) {
  ParameterList list;
  const StageParameters<ParameterId> ids = declare_stage(list, spec, stage);
  ModelParameters p{.embedding = view(ids.embedding)};
  const Binder<View> binder{view};
  for (const auto& layer : ids.layers) p.layers.push_back(binder(layer));
  p.head = {.final_norm = view(ids.head.final_norm), .lm_head = view(ids.head.lm_head)};
  return p;
}

}  // namespace

std::vector<ParameterInfo> list_parameters(const ModelSpec& spec, const StageRange& stage) {
  ParameterList list;
  declare_stage(list, spec, stage);
  return list.infos;
}

std::vector<ParameterInfo> list_parameters(const ModelSpec& spec) {
  return list_parameters(spec, whole_model(spec));
}

ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec,
                             const StageRange& stage) {
  return bind(spec, stage, [&](ParameterId id) { return store.weight(id); });
}

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec,
                               const StageRange& stage) {
  return bind(spec, stage, [&](ParameterId id) { return store.gradient(id); });
}

ModelParameters bind_weights(const ParameterStore& store, const ModelSpec& spec) {
  return bind_weights(store, spec, whole_model(spec));
}

ModelParameters bind_gradients(const ParameterStore& store, const ModelSpec& spec) {
  return bind_gradients(store, spec, whole_model(spec));
}

}  // namespace slimexx::model
