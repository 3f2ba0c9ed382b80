// Forward, log-probs and backward of a random model over packed sequences, as in training: planned
// first, then run in an arena of exactly that size.
#pragma once
#include <cstdint>
#include <vector>

#include "base/float_vectors.h"
#include "model/random_model_cuda.h"
#include "slimexx/ops/elementwise.h"

namespace slimexx::model {

struct Sequences {
  std::vector<int32_t> tokens, positions, cu{0}, rows, targets;
};

// All rows of a sequence except the last predict the next token.
inline Sequences make_sequences(const std::vector<int32_t>& lengths, int64_t vocabulary,
                                uint64_t seed) {
  Sequences s;
  PhiloxStream random(seed, 5);
  for (const int32_t length : lengths) {
    for (int32_t t = 0; t < length; ++t) {
      const auto token = static_cast<int32_t>(random.next_below(static_cast<uint64_t>(vocabulary)));
      if (t > 0) {
        s.rows.push_back(static_cast<int32_t>(s.tokens.size()) - 1);
        s.targets.push_back(token);
      }
      s.tokens.push_back(token);
      s.positions.push_back(t);
    }
    s.cu.push_back(static_cast<int32_t>(s.tokens.size()));
  }
  return s;
}

inline Sequences only(const Sequences& all, size_t b) {
  Sequences s;
  const int32_t begin = all.cu[b], end = all.cu[b + 1];
  s.tokens.assign(all.tokens.begin() + begin, all.tokens.begin() + end);
  s.positions.assign(all.positions.begin() + begin, all.positions.begin() + end);
  s.cu.push_back(end - begin);
  for (size_t r = 0; r < all.rows.size(); ++r)
    if (all.rows[r] >= begin && all.rows[r] < end) {
      s.rows.push_back(all.rows[r] - begin);
      s.targets.push_back(all.targets[r]);
    }
  return s;
}

struct Outcome {
  std::vector<float> log_probs, entropies;
  std::vector<std::vector<float>>
      gradients;  // by parameter, empty if frozen; none without backward
};

inline constexpr KeepPlan kKeepAll{.level = LayerKeep::kAll};

// Lists every level for all layers, and every level with one layer raised to the next level.
inline std::vector<KeepPlan> all_keep_plans() {
  std::vector<KeepPlan> plans;
  for (int level = 0; level < kNumLayerKeeps; ++level) {
    plans.push_back({.level = static_cast<LayerKeep>(level)});
    if (level + 1 < kNumLayerKeeps)
      plans.push_back({.level = static_cast<LayerKeep>(level), .num_raised = 1});
  }
  return plans;
}

class Pass {
 public:
  Pass(RandomModel& model, const Sequences& s, KeepPlan keep, bool backward)
      : model_(model), s_(s), keep_(keep), backward_(backward) {}
  // Limits the rows of f32 logits that the head may hold; 50 give several chunks.
  Pass& with_chunks(int64_t rows) {
    chunk_rows_ = rows;
    return *this;
  }
  // The head's backward recomputes its logits even if they were kept.
  Pass& forgetting_logits() {
    forgets_logits_ = true;
    return *this;
  }
  bool has_kept_logits() const { return has_kept_logits_; }

  Outcome run() {
    tensor::Arena plan = tensor::Arena::for_planning(model_.device, "test");
    run_on(ops::planning_context(plan));
    tensor::Arena arena(model_.device, plan.high_water_bytes(), "test");
    const ops::Context ctx = ops::compute_context(arena);
    if (backward_) ops::fill_zero(ctx, model_.store.gradient_memory());
    run_on(ctx);
    if (backward_)
      for (const ParameterInfo& info : model_.store.infos())
        outcome_.gradients.push_back(info.trainable ? values(ctx, model_.store.gradient(info.id))
                                                    : std::vector<float>{});
    return outcome_;
  }

 private:
  static std::vector<float> values(const ops::Context& ctx, Tensor x) {
    std::vector<float> out(static_cast<size_t>(x.num_elements()));
    tensor::download(ctx.stream, out.data(), x);
    return out;
  }
  static Tensor put(const ops::Context& ctx, const std::vector<int32_t>& values) {
    const Tensor t = ctx.arena.allocate(tensor::DType::kI32, {static_cast<int64_t>(values.size())});
    tensor::upload(ctx.stream, t, values.data());
    return t;
  }
  Tensor put_random(const ops::Context& ctx, uint64_t seed) const {
    PhiloxStream random(seed, 6);
    std::vector<float> numbers;
    for (size_t i = 0; i < s_.rows.size(); ++i)
      numbers.push_back(static_cast<float>(random.next_normal()));
    const Tensor t =
        ctx.arena.allocate(tensor::DType::kF32, {static_cast<int64_t>(numbers.size())});
    tensor::upload(ctx.stream, t, numbers.data());
    return t;
  }
  void run_on(const ops::Context& ctx) {
    Batch batch;
    batch.tokens = put(ctx, s_.tokens);
    batch.positions = put(ctx, s_.positions);
    batch.attention.cu_seqlens = s_.cu;
    if (!ctx.device().is_cpu()) batch.attention.device_cu_seqlens = put(ctx, s_.cu);
    const Tensor rows = put(ctx, s_.rows), targets = put(ctx, s_.targets);
    const auto n = static_cast<int64_t>(s_.rows.size());
    const Tensor log_probs = ctx.arena.allocate(tensor::DType::kF32, {n}),
                 entropies = ctx.arena.allocate(tensor::DType::kF32, {n});
    HeadOptions options{.temperature = 0.9f};
    options.max_logits_bytes = chunk_rows_ * model_.spec.vocab_size * 4;
    Tape tape{.keep = keep_};
    HeadTape head_tape;
    const Tensor x =
        model_.decoder.forward(ctx, model_.weights, batch, backward_ ? &tape : nullptr);
    head_forward(ctx, model_.spec.head(), model_.weights.head, x, {rows, targets}, options,
                 log_probs, entropies, backward_ ? &head_tape : nullptr);
    if (!ctx.planning()) {
      outcome_.log_probs = values(ctx, log_probs);
      outcome_.entropies = values(ctx, entropies);
    }
    if (!backward_) return;
    has_kept_logits_ = head_tape.logits.defined();
    if (forgets_logits_) head_tape.logits = {};
    const ModelParameters gradients = bind_gradients(model_.store, model_.spec);
    const Tensor dlog_probs = put_random(ctx, 1), dentropies = put_random(ctx, 2);
    const Tensor dx = ctx.arena.allocate(tensor::compute_dtype(ctx.device()), {x.dim(0), x.dim(1)});
    head_backward(ctx, model_.spec.head(), model_.weights.head, gradients.head, {rows, targets},
                  options, head_tape, entropies, dlog_probs, dentropies, dx, true);
    model_.decoder.backward(ctx, model_.weights, gradients, batch, tape, dx, true);
  }

  RandomModel& model_;
  const Sequences& s_;
  KeepPlan keep_;
  bool backward_;
  int64_t chunk_rows_ = 50;
  bool forgets_logits_ = false, has_kept_logits_ = false;
  Outcome outcome_;
};

}  // namespace slimexx::model
