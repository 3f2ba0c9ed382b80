#include "cli/sequence_scorer.h"

#include "slimexx/base/check.h"

namespace slimexx::cli {
namespace {

using tensor::DType;
using tensor::Tensor;

Tensor upload_ints(const ops::Context& ctx, const std::vector<int32_t>& values) {
  const Tensor t = ctx.arena.allocate(DType::kI32, {static_cast<int64_t>(values.size())});
  tensor::upload(ctx.stream, t, values.data());
  return t;
}

}  // namespace

// The sequences one after another; row r predicts targets[r].
struct SequenceScorer::Pack {
  explicit Pack(std::span<const std::vector<int32_t>> sequences) {
    for (const auto& sequence : sequences) {
      SLX_CHECK(sequence.size() >= 2, "a sequence of {} tokens", sequence.size());
      for (size_t i = 0; i < sequence.size(); ++i) {
        if (i + 1 < sequence.size()) {
          rows.push_back(static_cast<int32_t>(tokens.size()));
          targets.push_back(sequence[i + 1]);
        }
        positions.push_back(static_cast<int32_t>(i));
        tokens.push_back(sequence[i]);
      }
      cu_seqlens.push_back(static_cast<int32_t>(tokens.size()));
    }
  }
  std::vector<int32_t> tokens, positions, rows, targets, cu_seqlens = {0};
};

SequenceScorer::SequenceScorer(const model::Transformer& transformer,
                               const model::ParameterStore& store, float temperature,
                               tensor::Device device)
    : transformer_(transformer),
      weights_(model::bind_weights(store, transformer.spec())),
      head_{.temperature = temperature},
      device_(device),
      arena_(device, 0, "activations of one forward") {}

void SequenceScorer::run(const ops::Context& ctx, const Pack& pack, float* log_probs,
                         float* entropies) const {
  tensor::ArenaScope scope(ctx.arena);
  model::Batch batch;
  batch.tokens = upload_ints(ctx, pack.tokens);
  batch.positions = upload_ints(ctx, pack.positions);
  batch.attention.cu_seqlens = pack.cu_seqlens;
  if (!device_.is_cpu()) batch.attention.device_cu_seqlens = upload_ints(ctx, pack.cu_seqlens);
  const Tensor rows = upload_ints(ctx, pack.rows);
  const Tensor targets = upload_ints(ctx, pack.targets);
  const auto num_rows = static_cast<int64_t>(pack.rows.size());
  const Tensor scores = ctx.arena.allocate(DType::kF32, {num_rows});
  const Tensor entropy = ctx.arena.allocate(DType::kF32, {num_rows});
  const Tensor x = transformer_.forward(ctx, weights_, batch, nullptr);
  model::head_forward(ctx, transformer_.spec(), weights_, x, rows, targets, head_, scores, entropy,
                      nullptr);
  tensor::download(ctx.stream, log_probs, scores);
  tensor::download(ctx.stream, entropies, entropy);
}

std::vector<SequenceScores> SequenceScorer::score(std::span<const std::vector<int32_t>> sequences) {
  const Pack pack(sequences);
  tensor::Arena plan = tensor::Arena::for_planning(device_, arena_.what_for());
  run(ops::planning_context(plan), pack, nullptr, nullptr);
  arena_.reserve(plan.high_water_bytes());
  std::vector<float> log_probs(pack.rows.size()), entropies(pack.rows.size());
  run(ops::compute_context(arena_), pack, log_probs.data(), entropies.data());

  std::vector<SequenceScores> scores;
  auto at = std::ptrdiff_t{0};
  for (const auto& sequence : sequences) {
    const auto end = at + std::ptrdiff_t(sequence.size()) - 1;
    scores.push_back({{log_probs.begin() + at, log_probs.begin() + end},
                      {entropies.begin() + at, entropies.begin() + end}});
    at = end;
  }
  return scores;
}

}  // namespace slimexx::cli
