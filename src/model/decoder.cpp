#include "slimexx/model/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "model/layer_steps.h"
#include "model/rotary_table.h"
#include "model/row_parallel.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/ops/device_limits.h"
#include "slimexx/ops/norm.h"
#include "slimexx/tensor/planning.h"

namespace slimexx::model {
namespace {

using tensor::ArenaScope;

// Throws Error(kInput) for sizes that the kernels of the device do not support.
void check_device_sizes(const ModelSpec& spec, tensor::Device device) {
  const auto check_layer = [&](const LayerSpec& layer) {
    std::visit([&](const auto& block) { check_device_sizes(block, device); }, layer.attention);
    std::visit([&](const auto& block) { check_device_sizes(block, device); }, layer.mlp);
  };
  for (const LayerSpec& layer : spec.layers) check_layer(layer);
  for (const MtpSpec& mtp : spec.mtp)
    if (mtp.is_trained) check_layer(mtp.layer);  // MTP layers that are not trained never run
  check_device_sizes(spec.head(), device);
  if (device.is_cpu() || spec.hidden_size <= ops::kMaxRowWidth) return;
  throw Error(ErrorCode::kInput,
              fmt::format("rows of {} elements: norms support up to {} on {}", spec.hidden_size,
                          ops::kMaxRowWidth, tensor::to_string(device)),
              "use --device cpu", "hidden_size");
}

// Throws Error(kInput) if CUDA would compute a shard of a product by another kernel than the whole
// product: the bits would differ from those of one rank (kernels/gemm.h).
void check_device_shards(const ModelSpec& spec, tensor::Device device, int64_t shards) {
  if (device.is_cpu() || shards == 1) return;
  const auto check = [&](const char* key, int64_t whole) {
    constexpr int64_t kTensorCoreRows = 8;
    const int64_t own = whole / shards;
    if (whole % kTensorCoreRows != 0 || own % kTensorCoreRows == 0) return;
    throw Error(
        ErrorCode::kInput,
        fmt::format("{}: a product of {} rows over {} tensor-parallel ranks has shards of {} rows; "
                    "{} needs multiples of 8",
                    key, whole, shards, own, tensor::to_string(device)),
        "use --device cpu, or another parallel.tensor_model_parallel_size", key);
  };
  check("vocab_size", spec.vocab_size);
  const auto check_mlp = [&](const LayerSpec& layer) {
    const SplitProduct product =
        std::visit([](const auto& mlp) { return split_product(mlp); }, layer.mlp);
    check(product.key, product.rows);
  };
  std::ranges::for_each(spec.layers, check_mlp);
  for (const MtpSpec& mtp : spec.mtp) check_mlp(mtp.layer);
}

void check_stage(const ModelSpec& spec, const StageRange& stage) {
  SLX_CHECK(stage.first_layer >= 0 && stage.first_layer < stage.end_layer &&
                stage.end_layer <= spec.num_layers(),
            "layers [{}, {}) are not a stage of {} layers", stage.first_layer, stage.end_layer,
            spec.num_layers());
  // A layer can only share a selection made in its own stage: selections are not sent between
  // stages.
  int64_t last_top_k = 0;
  for (int64_t layer = stage.first_layer; layer < stage.end_layer; ++layer) {
    const KeyChoice choice = key_choice(spec.layer(layer));
    if (choice.selects) last_top_k = choice.top_k;
    if (choice.shares && choice.top_k != last_top_k)
      throw Error(ErrorCode::kInput,
                  fmt::format("layer {} of the stage of layers {} to {} shares the keys of an "
                              "earlier layer, but no earlier layer in the stage selects {} keys",
                              layer, stage.first_layer, stage.end_layer - 1, choice.top_k),
                  "stages must begin at layers with their own indexer", "indexer_types");
  }
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions)
    : Decoder(spec, device, max_positions, whole_model(spec)) {}

void set_fp8_cache(ModelSpec& spec) {
  spec.fp8_cache = true;
  const auto set = [](auto& block) { set_fp8_cache(block); };
  for (LayerSpec& layer : spec.layers) std::visit(set, layer.attention);
  for (MtpSpec& mtp : spec.mtp) std::visit(set, mtp.layer.attention);
}

ModelSpec narrow(const ModelSpec& spec, const dist::GridSizes& sizes) {
  ModelSpec own = spec;
  const auto narrow_layer = [&](LayerSpec& layer) {
    std::visit([&](auto& block) { block = narrow(block, sizes); }, layer.attention);
    std::visit([&](auto& block) { block = narrow(block, sizes); }, layer.mlp);
  };
  std::ranges::for_each(own.layers, narrow_layer);
  for (MtpSpec& mtp : own.mtp) narrow_layer(mtp.layer);
  check_tp_divides("vocab_size", spec.vocab_size, sizes.tp);
  return own;
}

namespace {

// Makes one tp rank compute its sums in `leaves` leaves (row_parallel.h).
void set_leaves(ModelSpec& spec, int64_t tp, int64_t leaves) {
  if (leaves == tp) return;
  if (tp != 1)
    throw Error(
        ErrorCode::kUsage,
        fmt::format("{} tensor-parallel ranks cannot compute sums of {} leaves", tp, leaves),
        "use as many leaves as tensor-parallel ranks, or one rank", "");
  narrow(spec, {.tp = static_cast<int>(leaves)});  // throws unless the leaves divide all sizes
  const auto set_layer = [&](LayerSpec& layer) {
    const auto set_block = [&](auto& block) { model::set_leaves(block, leaves); };
    std::visit(set_block, layer.attention);
    std::visit(set_block, layer.mlp);
  };
  std::ranges::for_each(spec.layers, set_layer);
  for (MtpSpec& mtp : spec.mtp) set_layer(mtp.layer);
  spec.leaves = leaves;
}

}  // namespace

Decoder::Decoder(const ModelSpec& spec, tensor::Device device, int64_t max_positions,
                 const StageRange& stage, const dist::GridSizes& sizes, int64_t leaves)
    : spec_(spec), local_spec_(narrow(spec, sizes)), stage_(stage), max_positions_(max_positions) {
  set_leaves(local_spec_, sizes.tp, leaves > 0 ? leaves : sizes.tp);
  check_stage(spec, stage);
  check_device_sizes(local_spec_, device);
  check_device_shards(spec, device, std::max<int64_t>(sizes.tp, leaves));
  const int64_t half = spec.rope.rotary_dim / 2;
  rotary_buffer_ = tensor::Buffer(device, 2 * max_positions * half * 4, "rotary tables");
  cos_ = rotary_buffer_.view(DType::kF32, {max_positions, half});
  sin_ = rotary_buffer_.view(DType::kF32, {max_positions, half}, max_positions * half * 4);
  if (tensor::is_planning()) return;
  std::vector<float> cos(static_cast<size_t>(max_positions * half)), sin(cos.size());
  fill_rotary_tables(spec.rope, max_positions, cos, sin);
  const tensor::Stream stream = tensor::compute_stream(device);
  tensor::upload(stream, cos_, cos.data());
  tensor::upload(stream, sin_, sin.data());
}

namespace {

// `layer` is an index in the stage.
LayerPlace place_of(const ModelSpec& spec, const StageRange& stage, const ops::RotaryTable& rotary,
                    const Batch& batch, int64_t layer) {
  return {.model = spec,
          .spec = spec.layer(stage.first_layer + layer),
          .rotary = rotary,
          .batch = batch,
          .pages = batch.pages.empty() ? LayerPages{} : batch.pages[static_cast<size_t>(layer)]};
}

}  // namespace

Tensor Decoder::forward(const ops::Context& ctx, const ModelParameters& weights, const Batch& batch,
                        Tape* tape, Tensor input) const {
  SLX_CHECK_EQ(input.defined(), !stage_.has_embedding);
  const RowCounts rows{own_rows(batch, ctx.groups).size(), batch.tokens.dim(0)};
  const auto hidden = [&] {
    return ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {rows.own, spec_.hidden_size});
  };
  const Tensor x_out = hidden();
  if (tape != nullptr) tape->layers.clear();
  LayerInput in{.x = input};
  if (stage_.has_embedding) in.x = tape != nullptr ? hidden() : x_out;
  in.normed = hidden();
  if (stage_.has_embedding) embed(ctx, weights.embedding, batch, in.x);
  ops::rms_norm_forward(ctx, in.normed, in.x, weights.layers[0].input_norm,
                        static_cast<float>(spec_.rms_norm_eps));
  const ops::RotaryTable rotary = rotary_table();
  const int64_t num_layers = stage_.num_layers();
  for (int64_t layer = 0; layer < num_layers; ++layer) {
    // The next layer reads this layer's output. A tape keeps each layer's input, so with a tape
    // every output has its own memory.
    const bool is_last = layer + 1 == num_layers;
    const LayerPlace place = place_of(local_spec_, stage_, rotary, batch, layer);
    // A tape keeps every selection. Without a tape the new selection overwrites the previous one,
    // which later layers no longer need.
    if (key_choice(place.spec).selects)
      in.selected = allocate_selection(ctx, place, tape == nullptr ? in.selected : Tensor{});
    const LayerInput out{.x = tape == nullptr || is_last ? x_out : hidden(),
                         .normed = in.normed,
                         .selected = in.selected};
    LayerTape kept = empty_tape(place.spec, in);
    if (tape != nullptr)
      allocate_kept(ctx.arena, local_spec_, place.spec, rows, tape->keep.of(layer), kept);
    const auto l = static_cast<size_t>(layer);
    layer_forward(ctx, place, weights.layers[l], kept, in.normed, out,
                  is_last ? Tensor{} : weights.layers[l + 1].input_norm);
    if (tape != nullptr) tape->layers.push_back(std::move(kept));
    in = out;
  }
  return x_out;
}

void Decoder::backward(const ops::Context& ctx, const ModelParameters& weights,
                       const ModelParameters& gradients, const Batch& batch, const Tape& tape,
                       Tensor dx, bool accumulate, const BackwardHooks& hooks,
                       const RouterBalances& routers) const {
  SLX_CHECK_EQ(static_cast<int64_t>(tape.layers.size()), stage_.num_layers());
  const ops::RotaryTable rotary = rotary_table();
  for (int64_t layer = stage_.num_layers() - 1; layer >= 0; --layer) {
    const auto l = static_cast<size_t>(layer);
    const int64_t in_model = stage_.first_layer + layer;
    const ArenaScope scope(ctx.arena);
    LayerPlace place = place_of(local_spec_, stage_, rotary, batch, layer);
    if (!routers.sums.empty())
      place.router = {.sums = routers.sums[static_cast<size_t>(in_model)],
                      .rule = routers.rule,
                      .sequences = batch.own_sequences};
    LayerTape layer_tape = tape.layers[l];
    if (tape.keep.of(layer) != LayerKeep::kAll)
      recompute_layer(ctx, place, weights.layers[l], layer_tape);
    layer_backward(ctx, place, weights.layers[l], gradients.layers[l], layer_tape, dx, accumulate,
                   [&] {
                     if (hooks.attention_next) hooks.attention_next(in_model);
                   });
    if (hooks.layer_done) hooks.layer_done(in_model);
  }
  if (stage_.has_embedding) embed_backward(ctx, gradients.embedding, batch, dx);
}

namespace {

// Bytes of one layer's tape at each level.
using TapeBytes = std::array<int64_t, kNumLayerKeeps>;

// Tape sizes of each layer of the stage. Layers with equal specs are measured once.
std::vector<TapeBytes> count_tape_bytes(const ModelSpec& spec, const StageRange& stage,
                                        tensor::Device device, const RowCounts& rows) {
  std::vector<TapeBytes> bytes;
  std::vector<int64_t> first_of_kind;  // layers of the stage, the first with each spec
  for (int64_t layer = 0; layer < stage.num_layers(); ++layer) {
    const auto alike = std::ranges::find_if(first_of_kind, [&](int64_t other) {
      return spec.layer(stage.first_layer + other) == spec.layer(stage.first_layer + layer);
    });
    if (alike != first_of_kind.end()) {
      bytes.push_back(bytes[static_cast<size_t>(*alike)]);
      continue;
    }
    first_of_kind.push_back(layer);
    TapeBytes& own = bytes.emplace_back();
    for (int level = 0; level < kNumLayerKeeps; ++level)
      own[static_cast<size_t>(level)] = layer_tape_bytes(spec, stage.first_layer + layer, device,
                                                         rows, static_cast<LayerKeep>(level));
  }
  return bytes;
}

}  // namespace

KeepPlan choose_keep(const ModelSpec& spec, const StageRange& stage, tensor::Device device,
                     const RowCounts& rows, int64_t bytes) {
  const std::vector<TapeBytes> tape_bytes = count_tape_bytes(spec, stage, device, rows);
  KeepPlan plan{.level = LayerKeep::kInputs, .num_raised = 0};
  for (size_t next = 1; next < kNumLayerKeeps; ++next) {
    for (; plan.num_raised < stage.num_layers(); ++plan.num_raised) {
      const TapeBytes& layer = tape_bytes[static_cast<size_t>(plan.num_raised)];
      const int64_t added = layer[next] - layer[next - 1];
      if (added > std::max<int64_t>(bytes, 0)) return plan;
      bytes -= added;
    }
    plan = {.level = static_cast<LayerKeep>(next), .num_raised = 0};
  }
  return plan;
}

}  // namespace slimexx::model
