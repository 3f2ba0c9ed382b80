// Every op of training's forward and backward accepts zero rows: it takes no memory, and writes
// only those gradients of weights that it does not accumulate.
#include "cpu_context.h"
#include "ops/testing.h"
#include "slimexx/ops/attention.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/embedding.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"
#include "slimexx/ops/norm.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/ops/rotary.h"
#include "slimexx/ops/sparse_attention.h"

namespace slimexx::ops {
namespace {

using tensor::DType;

constexpr int64_t kWidth = 8, kFeatures = 12, kVocabulary = 16;
constexpr QkvHeads kHeads{.query_heads = 2, .kv_heads = 1, .head_dim = 4};
constexpr int64_t kQkvWidth = 16;

// Zero rows share one address, as they do in an arena.
Tensor no_rows(std::initializer_list<int64_t> shape, DType dtype = DType::kF32) {
  static float memory[1];
  return Tensor(memory, dtype, {}, shape);
}
Tensor none() { return no_rows({0}); }
Tensor no_tokens() { return no_rows({0}, DType::kI32); }

// Makes a weight or a gradient whose values must stay unchanged.
class Ones {
 public:
  explicit Ones(std::initializer_list<int64_t> shape) : array_(shape) {
    std::fill_n(array_.view().f32(), array_.size(), 1.0f);
  }
  ~Ones() { EXPECT_EQ(count(1.0f), array_.size()); }
  operator Tensor() const { return array_.view(); }  // NOLINT: reads as the tensor it holds
  int64_t count(float value) const {
    return std::count(array_.view().f32(), array_.view().f32() + array_.size(), value);
  }

 private:
  testing::Array array_;
};

TEST(EmptyRows, MatmulForward) {
  const Ones w({kFeatures, kWidth}), bias({kFeatures});
  matmul_forward(cpu_context(), no_rows({0, kFeatures}), no_rows({0, kWidth}), {w, bias});
  matmul_forward(cpu_context(), no_rows({0, kFeatures}), no_rows({0, kWidth}), {w});
  matmul_swiglu_forward(cpu_context(), no_rows({0, kFeatures / 2}), no_rows({0, kWidth}),
                        {w, bias});
}

TEST(EmptyRows, MatmulBackwardWritesZerosWhereItDoesNotAdd) {
  const Ones w({kFeatures, kWidth}), kept({kFeatures, kWidth}), dbias({kFeatures});
  const Tensor dy = no_rows({0, kFeatures}), x = no_rows({0, kWidth});
  matmul_backward_input(cpu_context(), x, dy, w, false);
  matmul_backward_input(cpu_context(), x, dy, w, true);
  matmul_backward_weight(cpu_context(), kept, dbias, dy, x, true);
  testing::Array dw = testing::Array::random({kFeatures, kWidth}, 1);
  matmul_backward_weight(cpu_context(), dw.view(), dbias, dy, x, false);
  for (int64_t i = 0; i < dw.size(); ++i) EXPECT_EQ(dw[i], 0.0f);
}

TEST(EmptyRows, Norms) {
  const Ones w({kWidth}), dw({kWidth});
  const Tensor x = no_rows({0, kWidth});
  rms_norm_forward(cpu_context(), x, x, w, 1e-6f);
  layer_norm_forward(cpu_context(), x, x, w, w, 1e-6f);
  add_rms_norm_forward(cpu_context(), x, x, x, x, w, w, 1e-6f);
  add_rms_norm_forward(cpu_context(), {}, x, x, x, {}, {}, 1e-6f);
  for (const bool accumulate : {false, true})
    rms_norm_backward(cpu_context(), x, dw, x, x, w, 1e-6f, accumulate);
  const Ones head({4}), dhead({4});
  const Tensor heads = no_rows({0, 2, 4});
  head_norm_forward(cpu_context(), heads, heads, head, 1e-6f);
  head_norm_backward(cpu_context(), heads, dhead, heads, heads, head, 1e-6f);
}

TEST(EmptyRows, Rotary) {
  const Ones cos({5, 2}), sin({5, 2}), norm({4}), dnorm({4}), pages({2, 4, 1, 4});
  const RotaryTable table{cos, sin, RotaryStyle::kHalfSplit};
  const Tensor qkv = no_rows({0, kQkvWidth}), q_and_k = no_rows({0, kQkvWidth - 4});
  for (const Tensor& weight : {static_cast<Tensor>(norm), Tensor{}}) {
    qk_norm_rotary_forward(cpu_context(), qkv, qkv, weight, weight, 1e-6f, table, no_tokens(), {},
                           kHeads);
    qk_norm_rotary_forward(cpu_context(), q_and_k, qkv, weight, weight, 1e-6f, table, no_tokens(),
                           {.k_pages = pages, .v_pages = pages, .slots = no_tokens()}, kHeads);
    qk_norm_rotary_backward(cpu_context(), qkv, dnorm, dnorm, qkv, weight, weight, 1e-6f, table,
                            no_tokens(), kHeads);
  }
  rotary(cpu_context(), no_rows({0, 2, 4}), cos, sin, no_tokens(), RotaryStyle::kHalfSplit, false);
}

TEST(EmptyRows, Attention) {
  const std::vector<int32_t> cu_seqlens = {0};
  AttentionLayout layout;
  layout.cu_seqlens = cu_seqlens;
  const Tensor q = no_rows({0, 2, 4}), k = no_rows({0, 1, 4}), lse = no_rows({0, 2});
  attention_forward(cpu_context(), q, lse, q, k, k, layout, 0.5f);
  attention_forward(cpu_context(), q, {}, q, k, k, layout, 0.5f);
  attention_backward(cpu_context(), q, k, k, q, q, k, k, q, lse, layout, 0.5f);
  const Ones pages({2, 4, 1, 4});
  write_kv_pages(cpu_context(), pages, pages, k, k, no_tokens());
}

TEST(EmptyRows, SparseAttention) {
  const std::vector<int32_t> cu_seqlens = {0};
  AttentionLayout layout;
  layout.cu_seqlens = cu_seqlens;
  const Tensor q = no_rows({0, 2, 4}), k = no_rows({0, 1, 4}), scores = no_rows({0, 1});
  const Tensor ids = no_rows({0, 1}, DType::kI32);
  index_scores(cpu_context(), scores, q, no_rows({0, 2}), k, layout, 0, 1, 0.5f);
  select_keys(cpu_context(), ids, scores, layout, 0);
  layout.selected = ids;
  attention_forward(cpu_context(), q, {}, q, k, k, layout, 0.5f);
  attention_backward(cpu_context(), q, k, k, q, q, k, k, q, no_rows({0, 2}), layout, 0.5f);
}

TEST(EmptyRows, Elementwise) {
  const Tensor h = no_rows({0, 6}), gate_up = no_rows({0, 12});
  swiglu_forward(cpu_context(), h, gate_up);
  swiglu_backward(cpu_context(), gate_up, h, h, gate_up);
  swiglu_backward(cpu_context(), gate_up, {}, h, gate_up);
  add(cpu_context(), h, h, h);
  add_scaled(cpu_context(), h, h, 2.0f);
  scale(cpu_context(), h, 2.0f);
  fill_zero(cpu_context(), h);
  copy(cpu_context(), h, h);
  copy_rows(cpu_context(), h, h);
  const Ones x({3, 6});
  gather_rows(cpu_context(), h, x, no_tokens());
  scatter_add_rows(cpu_context(), x, h, no_tokens());
}

TEST(EmptyRows, EmbeddingAndLogProbs) {
  const Ones table({kVocabulary, kWidth}), dtable({kVocabulary, kWidth});
  embedding_forward(cpu_context(), no_rows({0, kWidth}), table, no_tokens());
  embedding_shard_forward(cpu_context(), no_rows({0, kWidth}), table, no_tokens(), 7);
  embedding_backward(cpu_context(), dtable, no_rows({0, kWidth}), no_tokens());
  const Tensor logits = no_rows({0, kVocabulary});
  normalize_logits(cpu_context(), logits, none(), 1.0f);
  gather_log_probs(cpu_context(), none(), none(), logits, none(), no_tokens());
  for (const Tensor& entropies : {none(), Tensor{}})
    log_probs_backward(cpu_context(), logits, logits, none(), no_tokens(), entropies, none(),
                       entropies, 1.0f);
}

TEST(EmptyRows, PolicyLossLeavesTheMetrics) {
  const std::vector<int32_t> cu_rows = {0};
  testing::Array metrics({kNumLossMetrics}, DType::kF64);
  std::fill_n(metrics.view().data<double>(), kNumLossMetrics, 3.0);
  PolicyLossOptions options;
  options.entropy_coef = 0.1f;
  options.use_kl = true;
  for (const LossKind kind : {LossKind::kClip, LossKind::kGspo, LossKind::kSft}) {
    options.kind = kind;
    policy_loss(cpu_context(), none(), none(), metrics.view(),
                {.log_probs = none(),
                 .entropies = none(),
                 .old_log_probs = none(),
                 .ref_log_probs = none(),
                 .rollout_log_probs = none(),
                 .advantages = none(),
                 .mask = none(),
                 .weights = none(),
                 .cu_rows = cu_rows},
                options);
  }
  for (int m = 0; m < kNumLossMetrics; ++m) EXPECT_EQ(metrics.view().data<double>()[m], 3.0);
}

// Zero rows take no scratch on a device either. Checked in a planning context for a GPU, whose ops
// otherwise use scratch.
TEST(EmptyRows, TakeNoMemory) {
  const tensor::Device gpu{tensor::DeviceType::kCuda, 0};
  tensor::Arena plan = tensor::Arena::for_planning(gpu, "");
  const Context ctx = planning_context(plan);
  const auto rows = [&](std::initializer_list<int64_t> shape, DType dtype = DType::kBF16) {
    return Tensor(nullptr, dtype, gpu, shape);
  };
  const Tensor x = rows({0, 8}), row = rows({0}, DType::kF32), ids = rows({0}, DType::kI32);
  matmul_forward(ctx, x, x, {rows({8, 8})});
  matmul_backward_input(ctx, x, x, rows({8, 8}), false);
  matmul_backward_weight(ctx, rows({8, 8}, DType::kF32), {}, x, x, false);
  rms_norm_forward(ctx, x, x, rows({8}), 1e-6f);
  rms_norm_backward(ctx, x, rows({8}, DType::kF32), x, x, rows({8}), 1e-6f, false);
  embedding_backward(ctx, rows({16, 8}, DType::kF32), x, ids);
  lm_head_forward(ctx, row, row, row, x, rows({16, 8}), ids, 1.0f, {});
  lm_head_backward_logits(ctx, rows({0, 16}), x, rows({16, 8}), row, ids, row, row, row, 1.0f);
  lm_head_kept_backward(ctx, rows({0, 16}), rows({0, 16}, DType::kF32), row, ids, row, row, row,
                        1.0f);
  EXPECT_EQ(plan.high_water_bytes(), 0);
}

}  // namespace
}  // namespace slimexx::ops
