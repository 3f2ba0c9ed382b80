#include "train/copied_gradients.h"

#include "slimexx/ops/elementwise.h"

namespace slimexx::train {

using tensor::DType;
using tensor::Tensor;

CopiedGradients::CopiedGradients(std::span<const StageChunk> chunks, const dist::Collective& tp) {
  for (const StageChunk& chunk : chunks) add_chunk(chunk.decoder, chunk.gradients, tp.size());
}

void CopiedGradients::add_chunk(const model::Decoder& decoder,
                                const model::ModelParameters& gradients, int tp) {
  const model::ModelSpec &whole = decoder.spec(), &own = decoder.local_spec();
  for (int64_t i = 0; i < decoder.stage().num_layers(); ++i) {
    const int64_t layer = decoder.stage().first_layer + i;
    add_layer(whole.layer(layer), own.layer(layer), gradients.layers[static_cast<size_t>(i)], tp);
  }
  for (size_t k = 0; k < gradients.mtp.size(); ++k)
    if (whole.mtp[k].is_trained)
      add_layer(whole.mtp[k].layer, own.mtp[k].layer, gradients.mtp[k].layer, tp);
}

void CopiedGradients::add_layer(const model::LayerSpec& whole, const model::LayerSpec& own,
                                const model::LayerParameters<Tensor>& gradients, int tp) {
  const auto add_rows = [&]<class Spec>(const Spec& own_spec) {
    const auto& g = std::get<typename Spec::template Parameters<Tensor>>(gradients.attention);
    const auto rows = list_copied_rows(std::get<Spec>(whole.attention), own_spec, g, tp);
    rows_.insert(rows_.end(), rows.begin(), rows.end());
  };
  std::visit(add_rows, own.attention);
}

void CopiedGradients::sum(const ops::Context& ctx) const {
  dist::Collective& tp = ctx.groups.tp;
  for (const model::CopiedRows& rows : rows_) {
    const tensor::ArenaScope scope(ctx.arena);
    const int64_t n = rows.values.num_elements();
    const Tensor own = rows.values.reshaped({n});
    const Tensor all = ctx.arena.allocate(DType::kF32, {tp.size() * n});
    tp.all_gather(ctx.stream, all, own);
    const int64_t first = tp.rank() / rows.num_copies * rows.num_copies;
    const auto copy_of = [&](int64_t i) { return all.rows((first + i) * n, (first + i + 1) * n); };
    ops::copy(ctx, own, copy_of(0));
    for (int64_t i = 1; i < rows.num_copies; ++i) ops::add(ctx, own, own, copy_of(i));
  }
}

}  // namespace slimexx::train
