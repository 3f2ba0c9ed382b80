// Activation checkpointing: how much each layer keeps from forward to backward, chosen by a memory
// budget. Backward recomputes the rest with the same bits.
#pragma once
#include <cstdint>

namespace slimexx::model {

// A level keeps all of the level before and adds to it.
enum class LayerKeep : uint8_t {
  kInputs,      // x, attention's output and log-sum-exps, and x_mid if there are no sandwich norms
  kNormInputs,  // o_raw and down_raw, the inputs of sandwich norms: saves two products
  kGateUp,      // gate_up: saves its product
  kAll,         // qkv and x_mid: backward recomputes norms and h, but no product
};
inline constexpr int kNumLayerKeeps = 4;

// The levels of all layers: layers [0, num_raised) of the stage keep one level more than `level`.
struct KeepPlan {
  LayerKeep level = LayerKeep::kAll;
  int64_t num_raised = 0;
  LayerKeep of(int64_t layer) const {
    return layer < num_raised ? static_cast<LayerKeep>(static_cast<int>(level) + 1) : level;
  }
  bool operator==(const KeepPlan&) const = default;
};

}  // namespace slimexx::model
