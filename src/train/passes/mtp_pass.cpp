#include "train/passes/mtp_pass.h"

#include <algorithm>
#include <numeric>

#include "slimexx/model/tp_rows.h"
#include "slimexx/ops/elementwise.h"
#include "slimexx/ops/norm.h"

namespace slimexx::train {
namespace {

using tensor::DType;
using tensor::Tensor;

// The first token of a sample that depth k predicts: a response token at k + 2 or later.
int64_t first_label(const Sample& sample, int64_t depth) {
  return std::max(sample.prompt_length(), depth + 2);
}

bool is_label(const Sample& sample, int64_t token) {
  return sample.loss_mask[static_cast<size_t>(token - sample.prompt_length())] != 0;
}

int64_t count_labels(std::span<const Sample> samples, int64_t depth) {
  int64_t count = 0;
  for (const Sample& sample : samples)
    for (int64_t t = first_label(sample, depth); t < std::ssize(sample.tokens); ++t)
      count += is_label(sample, t) ? 1 : 0;
  return count;
}

template <class T>
Tensor upload_vector(const ops::Context& ctx, DType dtype, const std::vector<T>& values) {
  const Tensor t = ctx.arena.allocate(dtype, {std::ssize(values)});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

// State of one layer between its forward and its backward.
struct Depth {
  model::Batch batch;
  int64_t num_rows = 0;
  std::vector<dist::Range> tp_ranges;
  model::HeadRows rows;
  Tensor y;  // [T,H]
  model::MtpTape tape;
};

// One pass over the layers. All memory belongs to the caller's arena scope.
class MtpPass {
 public:
  MtpPass(const Pass& pass, const model::ModelParameters& gradients, const MtpWork& work,
          bool accumulate)
      : p_(pass), gradients_(gradients), work_(work), accumulate_(accumulate), head_(pass.head) {
    head_.temperature =
        1;  // the loss uses the model's distribution, not the sampling temperature's
  }

  void forward(std::span<const Sample> samples, std::span<const int64_t> indices,
               const Microbatch& microbatch, Tensor x) {
    Tensor hidden = normalize(x, p_.weights.head.final_norm);
    depths_.resize(work_.num_labels.size());
    for (size_t k = 0; k < depths_.size(); ++k) {
      Depth& d = depths_[k];
      MtpLabels labels = list_mtp_labels(samples, indices, static_cast<int64_t>(k));
      if (microbatch.batch.context.is_sharded()) labels = own_share(labels, microbatch);
      d.batch = microbatch.batch;
      d.batch.tokens = upload_vector(p_.ctx, DType::kI32, labels.tokens);
      const int64_t vocab_size = p_.decoder.spec().vocab_size;
      d.batch.own_vocabulary = {};  // the embedding is a constant
      d.num_rows = std::ssize(labels.rows);
      d.rows = make_head_rows(p_.ctx, vocab_size, d.batch.tp_rows, labels.rows, labels.targets,
                              d.tp_ranges);
      d.y = model::mtp_forward(p_.ctx, p_.decoder, p_.weights, k, d.batch, hidden, d.tape);
      if (k + 1 < depths_.size()) hidden = normalize(d.y, p_.weights.mtp[k].final_norm);
    }
  }

  // From the last layer to the first: a layer also learns from later layers.
  void backward() {
    const Tensor x = depths_[0].y;
    const Tensor dx = allocate_like(x);
    const Tensor dhidden = depths_.size() > 1 ? allocate_like(x) : Tensor{};
    for (size_t k = depths_.size(); k-- > 0;) {
      Depth& d = depths_[k];
      add_loss(k, dx);
      if (k + 1 < depths_.size())
        ops::rms_norm_backward(p_.ctx, dx, gradients_.mtp[k].final_norm, dhidden, d.y,
                               p_.weights.mtp[k].final_norm, eps(), true);
      model::mtp_backward(p_.ctx, p_.decoder, p_.weights, gradients_, k, d.batch, d.tape, dx,
                          accumulate_);
      if (k > 0) ops::copy(p_.ctx, dhidden, dx);
    }
  }

 private:
  // A plan for the largest rank uses the row count of the cp rank with the most rows.
  MtpLabels own_share(const MtpLabels& labels, const Microbatch& microbatch) const {
    const model::ContextShards& shards = microbatch.token_shards;
    MtpLabels own = take_share(labels, shards, microbatch.context_rank);
    if (!p_.ctx.planning() || p_.measured == MeasuredRank::kOwn) return own;
    size_t most = 0;
    for (int rank = 0; rank < p_.ctx.groups.cp.size(); ++rank)
      most = std::max(most, take_share(labels, shards, rank).rows.size());
    own.rows.resize(most);
    own.targets.resize(most);
    return own;
  }

  // The loss of depth k, and its gradient with respect to y.
  void add_loss(size_t k, Tensor dx) {
    const tensor::ArenaScope scope(p_.ctx.arena);
    const Depth& d = depths_[k];
    const model::HeadSpec spec = p_.decoder.local_spec().head();
    // Embedding, trunk and head are constants here: no gradient for the head's matrix.
    const model::HeadParameters<Tensor> w{p_.weights.mtp[k].final_norm, p_.weights.head.lm_head};
    const model::HeadParameters<Tensor> g{gradients_.mtp[k].final_norm, {}};
    const int64_t num_rows = d.num_rows;
    const auto values = [&](float value) {
      return upload_vector(p_.ctx, DType::kF32,
                           std::vector<float>(static_cast<size_t>(num_rows), value));
    };
    const Tensor log_probs = p_.ctx.arena.allocate(DType::kF32, {num_rows});
    const Tensor dlog_probs = p_.ctx.arena.allocate(DType::kF32, {num_rows});
    const std::vector<int32_t> cu_rows = {0, static_cast<int32_t>(num_rows)};
    ops::PolicyLossRows rows;
    rows.log_probs = log_probs;
    rows.mask = values(1);
    rows.weights = values(static_cast<float>(1 / static_cast<double>(work_.num_labels[k])));
    rows.cu_rows = cu_rows;
    model::HeadTape tape;
    model::head_forward(p_.ctx, spec, w, d.y, d.rows, head_, log_probs, {}, &tape);
    ops::policy_loss(p_.ctx, dlog_probs, {}, work_.metrics[k], rows, {.kind = ops::LossKind::kSft});
    ops::scale(p_.ctx, dlog_probs, work_.factor);
    model::head_backward(p_.ctx, spec, w, g, d.rows, head_, tape, {}, dlog_probs, {}, dx,
                         accumulate_);
  }

  Tensor normalize(Tensor x, Tensor w) {
    const Tensor normed = allocate_like(x);
    ops::rms_norm_forward(p_.ctx, normed, x, w, eps());
    return normed;
  }
  Tensor allocate_like(Tensor x) { return p_.ctx.arena.allocate(x.dtype(), {x.dim(0), x.dim(1)}); }
  float eps() const { return static_cast<float>(p_.decoder.spec().rms_norm_eps); }

  const Pass& p_;
  const model::ModelParameters& gradients_;
  const MtpWork& work_;
  const bool accumulate_;
  model::HeadOptions head_;
  std::vector<Depth> depths_;
};

}  // namespace

MtpLabels list_mtp_labels(std::span<const Sample> samples, std::span<const int64_t> indices,
                          int64_t depth) {
  MtpLabels labels;
  for (const int64_t index : indices) {
    const Sample& sample = samples[static_cast<size_t>(index)];
    const auto start = static_cast<int64_t>(labels.tokens.size());
    const int64_t length = std::ssize(sample.tokens), shift = depth + 1;
    for (int64_t i = shift; i < length + shift; ++i)
      labels.tokens.push_back(i < length ? sample.tokens[static_cast<size_t>(i)] : 0);
    for (int64_t t = first_label(sample, depth); t < length; ++t) {
      if (!is_label(sample, t)) continue;
      labels.rows.push_back(static_cast<int32_t>(start + t - shift - 1));
      labels.targets.push_back(sample.tokens[static_cast<size_t>(t)]);
    }
  }
  return labels;
}

MtpLabels take_share(const MtpLabels& labels, const model::ContextShards& token_shards, int rank) {
  MtpLabels own;
  own.tokens = model::take_share(token_shards, rank, labels.tokens);
  const dist::Range range = token_shards.ranges[static_cast<size_t>(rank)];
  for (size_t i = 0; i < labels.rows.size(); ++i) {
    const int64_t row = token_shards.rank_rows[static_cast<size_t>(labels.rows[i])];
    if (row < range.begin || row >= range.end) continue;
    own.rows.push_back(static_cast<int32_t>(row - range.begin));
    own.targets.push_back(labels.targets[i]);
  }
  return own;
}

MtpWork make_mtp_work(std::span<const Sample> samples, int64_t num_layers, double scaling_factor) {
  MtpWork work{.num_labels = {},
               .factor = static_cast<float>(scaling_factor /
                                            static_cast<double>(std::max<int64_t>(num_layers, 1)))};
  for (int64_t depth = 0; depth < num_layers; ++depth)
    work.num_labels.push_back(std::max<int64_t>(count_labels(samples, depth), 1));
  return work;
}

void run_mtp(const Pass& p, const model::ModelParameters& gradients,
             std::span<const Sample> samples, std::span<const int64_t> indices,
             const Microbatch& microbatch, Tensor x, const MtpWork& work, bool accumulate) {
  const tensor::ArenaScope scope(p.ctx.arena);
  MtpPass pass(p, gradients, work, accumulate);
  pass.forward(samples, indices, microbatch, x);
  pass.backward();
}

}  // namespace slimexx::train
