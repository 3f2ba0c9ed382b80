#include "layer_tape.h"

#include <algorithm>

namespace slimexx::model {

using tensor::DType;

void allocate_kept(Arena& arena, const ModelSpec& spec, int64_t num_tokens, LayerKeep level,
                   LayerTape& tape) {
  const DType dtype = tensor::compute_dtype(arena.device());
  const auto rows = [&](int64_t width) { return arena.allocate(dtype, {num_tokens, width}); };
  tape.attention = rows(spec.q_size());
  tape.lse = arena.allocate(DType::kF32, {num_tokens, spec.num_heads});
  if (!spec.sandwich_norms) tape.x_mid = rows(spec.hidden_size);
  if (level >= LayerKeep::kNormInputs && spec.sandwich_norms) {
    tape.o_raw = rows(spec.hidden_size);
    tape.down_raw = rows(spec.hidden_size);
  }
  if (level >= LayerKeep::kGateUp) tape.gate_up = rows(2 * spec.intermediate_size);
  if (level < LayerKeep::kAll) return;
  if (spec.qk_norm) tape.qkv_raw = rows(spec.qkv_size());
  tape.qkv = rows(spec.qk_norm ? spec.q_size() + spec.kv_size() : spec.qkv_size());
  if (spec.sandwich_norms) tape.x_mid = rows(spec.hidden_size);
}

void allocate_rest(Arena& arena, const ModelSpec& spec, int64_t num_tokens, bool for_backward,
                   LayerTape& tape) {
  const DType dtype = tensor::compute_dtype(arena.device());
  const auto add_rows = [&](Tensor& t, int64_t width) {
    if (!t.defined()) t = arena.allocate(dtype, {num_tokens, width});
  };
  if (spec.qk_norm) add_rows(tape.qkv_raw, spec.qkv_size());
  add_rows(tape.qkv, spec.qk_norm ? spec.q_size() + spec.kv_size() : spec.qkv_size());
  if (!tape.lse.defined()) {
    add_rows(tape.attention, spec.q_size());
    tape.lse = arena.allocate(DType::kF32, {num_tokens, spec.num_heads});
  }
  if (spec.sandwich_norms) add_rows(tape.o_raw, spec.hidden_size);
  add_rows(tape.x_mid, spec.hidden_size);
  if (for_backward) {
    add_rows(tape.gate_up, 2 * spec.intermediate_size);
  } else if (!tape.gate_up.defined()) {
    add_rows(tape.h, spec.intermediate_size);
  }
  if (spec.sandwich_norms) add_rows(tape.down_raw, spec.hidden_size);
}

int64_t layer_tape_bytes(const ModelSpec& spec, tensor::Device device, int64_t num_tokens,
                         LayerKeep level) {
  Arena plan = Arena::for_planning(device, "layer tape");
  LayerTape tape;
  allocate_kept(plan, spec, num_tokens, level, tape);
  return plan.used_bytes();
}

KeepPlan choose_keep(const ModelSpec& spec, tensor::Device device, int64_t num_tokens,
                     int64_t bytes) {
  KeepPlan plan{.level = LayerKeep::kInputs, .num_raised = 0};
  int64_t at_level = layer_tape_bytes(spec, device, num_tokens, plan.level);
  for (int next = 1; next < kNumLayerKeeps; ++next) {
    const auto level = static_cast<LayerKeep>(next);
    const int64_t added = layer_tape_bytes(spec, device, num_tokens, level) - at_level;
    const int64_t raised = added == 0 ? spec.num_layers : std::min(spec.num_layers, bytes / added);
    if (raised < spec.num_layers) {
      plan.num_raised = std::max<int64_t>(raised, 0);
      return plan;
    }
    plan.level = level;
    bytes -= added * spec.num_layers;
    at_level += added;
  }
  return plan;
}

}  // namespace slimexx::model
