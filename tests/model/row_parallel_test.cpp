// Compares tensor-parallel ranks with one rank that uses the same number of leaves: products, the
// vocabulary, embeddings.
#include "model/row_parallel.h"

#include <gtest/gtest.h>

#include <mutex>
#include <vector>

#include "model/random_model.h"
#include "slimexx/base/error.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/blocks/dense_mlp.h"
#include "slimexx/model/blocks/embedding.h"
#include "slimexx/model/blocks/head.h"
#include "slimexx/ops/sampling.h"

namespace slimexx::model {
namespace {

using Floats = std::vector<float>;

Floats random_floats(int64_t n, uint64_t seed) {
  PhiloxStream random(seed, 9);
  Floats values;
  for (int64_t i = 0; i < n; ++i) values.push_back(static_cast<float>(random.next_normal()));
  return values;
}

Tensor view(Floats& values, int64_t rows, int64_t columns) {
  return Tensor(values.data(), DType::kF32, {}, {rows, columns});
}
Tensor view(Floats& values) { return Tensor(values.data(), DType::kF32, {}, {std::ssize(values)}); }
Tensor view(std::vector<int32_t>& values) {
  return Tensor(values.data(), DType::kI32, {}, {std::ssize(values)});
}

// Rows or columns of a matrix in a range.
Floats rows_of(const Floats& all, int64_t columns, dist::Range rows) {
  return {all.begin() + rows.begin * columns, all.begin() + rows.end * columns};
}
Floats columns_of(const Floats& all, int64_t columns, dist::Range part) {
  Floats values;
  for (size_t row = 0; row < all.size(); row += static_cast<size_t>(columns))
    for (int64_t c = part.begin; c < part.end; ++c)
      values.push_back(all[row + static_cast<size_t>(c)]);
  return values;
}

// The range of share r if n elements are split into `ranks` equal shares.
dist::Range share(int64_t n, int ranks, int r) { return {n * r / ranks, n * (r + 1) / ranks}; }

constexpr int64_t kTokens = 7, kHidden = 12, kWide = 24, kVocabulary = 40;

// A batch of 7 rows; the last ranks have fewer rows or none.
struct TpBatch {
  TpBatch(int ranks, int rank) : tokens(static_cast<size_t>(kTokens)) {
    PhiloxStream random(5, 9);
    for (int32_t& token : tokens) token = static_cast<int32_t>(random.next_below(kVocabulary));
    batch.tokens = view(tokens);
    if (ranks == 1) return;
    tp_rows = dist::split_range(kTokens, ranks, 1);
    batch.tp_rows = tp_rows;
    const dist::Range own = share(kVocabulary, ranks, rank);
    for (int32_t i = 0; i < kTokens; ++i) {
      const int32_t token = tokens[static_cast<size_t>(i)];
      if (token < own.begin || token >= own.end) continue;
      own_rows.push_back(i);
      own_ids.push_back(token - static_cast<int32_t>(own.begin));
    }
    batch.own_vocabulary = {view(own_rows), view(own_ids)};
  }
  std::vector<int32_t> tokens, own_rows, own_ids;
  std::vector<dist::Range> tp_rows;
  Batch batch;
};

// Runs body(context, batch, ranks, rank) on every tp rank.
template <class Body>
void run_on_tp(int ranks, const Body& body) {
  dist::run_thread_ranks(ranks, [&](dist::Collective& tp) {
    dist::Collective one;
    const dist::Groups groups{one, tp, one, one, one, one, one, one, one, one};
    tensor::Arena arena({}, int64_t{1} << 20, "test");
    const TpBatch batch(ranks, tp.rank());
    body(ops::compute_context(arena, groups), batch.batch, ranks, tp.rank());
  });
}

struct DenseOutcome {
  Floats down, dnormed, gate_up_bias, down_bias;  // bias gradients are summed over ranks
};

// A dense MLP with biases, forward and backward.
DenseOutcome run_dense_mlp(int ranks, int64_t leaves) {
  DenseOutcome outcome{Floats(kTokens * kHidden), Floats(kTokens * kHidden), Floats(2 * kWide),
                       Floats(kHidden)};
  std::mutex mutex;
  run_on_tp(ranks, [&](const ops::Context& ctx, const Batch& batch, int tp, int rank) {
    const DenseMlpSpec whole{.hidden_size = kHidden, .intermediate_size = kWide, .bias = true};
    DenseMlpSpec spec = narrow(whole, {.tp = tp});
    spec.leaves = leaves;
    const dist::Range own = own_rows(batch, ctx.groups), part = share(kWide, tp, rank),
                      up{part.begin + kWide, part.end + kWide};
    const auto gate_and_up = [&](const Floats& all, int64_t columns) {
      Floats values = rows_of(all, columns, part);
      const Floats more = rows_of(all, columns, up);
      values.insert(values.end(), more.begin(), more.end());
      return values;
    };
    const int64_t f = spec.intermediate_size;
    Floats gate_up = gate_and_up(random_floats(2 * kWide * kHidden, 1), kHidden),
           gate_up_bias = gate_and_up(random_floats(2 * kWide, 2), 1),
           down = columns_of(random_floats(kHidden * kWide, 3), kWide, part),
           down_bias = random_floats(kHidden, 4),
           normed = rows_of(random_floats(kTokens * kHidden, 5), kHidden, own),
           dout = rows_of(random_floats(kTokens * kHidden, 6), kHidden, own);
    Floats y(normed.size()), dnormed(normed.size()), dgate_up(gate_up.size()),
        dgate_up_bias(gate_up_bias.size()), ddown(down.size()), ddown_bias(down_bias.size());
    const DenseMlpParameters<Tensor> w{{view(gate_up, 2 * f, kHidden), view(gate_up_bias)},
                                       {view(down, kHidden, f), view(down_bias)}};
    const DenseMlpParameters<Tensor> g{{view(dgate_up, 2 * f, kHidden), view(dgate_up_bias)},
                                       {view(ddown, kHidden, f), view(ddown_bias)}};
    DenseMlpTape tape;
    allocate_rest(ctx.arena, spec, {own.size(), kTokens}, true, tape);
    project_up(ctx, spec, w, batch, tape, view(normed, own.size(), kHidden));
    project_down(ctx, spec, w, batch, tape, view(y, own.size(), kHidden));
    backward(ctx, spec, w, g, batch, tape, view(dout, own.size(), kHidden),
             view(normed, own.size(), kHidden), view(dnormed, own.size(), kHidden), true);
    const std::lock_guard lock(mutex);
    std::copy(y.begin(), y.end(), outcome.down.begin() + own.begin * kHidden);
    std::copy(dnormed.begin(), dnormed.end(), outcome.dnormed.begin() + own.begin * kHidden);
    for (int64_t i = 0; i < f; ++i) {
      const auto at = static_cast<size_t>(i), from = static_cast<size_t>(part.begin + i);
      outcome.gate_up_bias[from] += dgate_up_bias[at];
      outcome.gate_up_bias[from + kWide] += dgate_up_bias[at + static_cast<size_t>(f)];
    }
    for (size_t i = 0; i < ddown_bias.size(); ++i) outcome.down_bias[i] += ddown_bias[i];
  });
  return outcome;
}

void expect_near(const Floats& actual, const Floats& expected, const char* what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << what << " " << i;
}

TEST(RowParallel, DenseMlpIsThatOfOneRankWithLeaves) {
  const DenseOutcome plain = run_dense_mlp(1, 1);
  for (const int ranks : {2, 3, 4, 12}) {
    SCOPED_TRACE(ranks);
    const DenseOutcome many = run_dense_mlp(ranks, 1), one = run_dense_mlp(1, ranks);
    EXPECT_EQ(many.down, one.down);
    expect_near(one.down, plain.down, "leaves");
    expect_near(many.dnormed, plain.dnormed, "dnormed");
    expect_near(many.gate_up_bias, plain.gate_up_bias, "gate_up_bias");
    expect_near(many.down_bias, plain.down_bias, "down_bias");
  }
}

TEST(RowParallel, EmbeddingsAreExact) {
  const Floats table = random_floats(kVocabulary * kHidden, 1);
  const Floats dx = random_floats(kTokens * kHidden, 2);
  const auto run = [&](int ranks) {
    std::pair<Floats, Floats> outcome{Floats(kTokens * kHidden), Floats(table.size())};
    std::mutex mutex;
    run_on_tp(ranks, [&](const ops::Context& ctx, const Batch& batch, int tp, int rank) {
      const dist::Range own = own_rows(batch, ctx.groups), part = share(kVocabulary, tp, rank);
      Floats own_table = rows_of(table, kHidden, part), own_dx = rows_of(dx, kHidden, own),
             x(own_dx.size()), dtable(own_table.size());
      embed(ctx, view(own_table, part.size(), kHidden), batch, view(x, own.size(), kHidden));
      embed_backward(ctx, view(dtable, part.size(), kHidden), batch,
                     view(own_dx, own.size(), kHidden));
      const std::lock_guard lock(mutex);
      std::copy(x.begin(), x.end(), outcome.first.begin() + own.begin * kHidden);
      std::copy(dtable.begin(), dtable.end(), outcome.second.begin() + part.begin * kHidden);
    });
    return outcome;
  };
  const auto one = run(1);
  for (const int ranks : {2, 5, 8}) EXPECT_EQ(run(ranks), one) << ranks;
}

// Logits from vocabulary leaves are complete on every rank, with the bits of one rank.
TEST(RowParallel, RowsOfLogitsAreWholeOnEveryRank) {
  const Floats x = random_floats(kTokens * kHidden, 1), norm(kHidden, 1),
               table = random_floats(kVocabulary * kHidden, 2);
  const auto run = [&](int ranks) {
    std::vector<Floats> logits(static_cast<size_t>(ranks));
    run_on_tp(ranks, [&](const ops::Context& ctx, const Batch& batch, int tp, int rank) {
      const dist::Range own = own_rows(batch, ctx.groups), part = share(kVocabulary, tp, rank);
      Floats own_x = rows_of(x, kHidden, own), own_norm = norm,
             own_table = rows_of(table, kHidden, part);
      std::vector<int32_t> rows = {5, 0, 6};
      const Tensor all = gather_tp_rows(ctx, batch, view(own_x, own.size(), kHidden));
      const Tensor result =
          head_logits(ctx, {kHidden, kVocabulary, 1e-6},
                      {view(own_norm), view(own_table, part.size(), kHidden)}, all, view(rows));
      logits[static_cast<size_t>(rank)].assign(result.f32(), result.f32() + 3 * kVocabulary);
    });
    return logits;
  };
  const Floats one = run(1)[0];
  for (const int ranks : {2, 5, 8})
    for (const Floats& logits : run(ranks)) EXPECT_EQ(logits, one) << ranks;
}

// Sampling from leaves reports the head's log-probs (N9), on one rank and on many.
TEST(RowParallel, HeadAndSamplingMergeLeavesAlike) {
  const Floats x = random_floats(kTokens * kHidden, 1), norm(kHidden, 1),
               table = random_floats(kVocabulary * kHidden, 2);
  constexpr float kTemperature = 0.9f;
  for (const int leaves : {2, 4, 8}) {
    SCOPED_TRACE(leaves);
    std::vector<int32_t> sampled(kTokens);
    Floats sampled_log_probs(kTokens);
    run_on_tp(1, [&](const ops::Context& ctx, const Batch&, int, int) {
      Floats own_x = x, own_norm = norm, own_table = table;
      std::vector<int32_t> rows;
      for (int32_t i = 0; i < kTokens; ++i) rows.push_back(i);
      const HeadSpec spec{kHidden, kVocabulary, 1e-6, leaves};
      const Tensor logits =
          head_logits(ctx, spec, {view(own_norm), view(own_table, kVocabulary, kHidden)},
                      view(own_x, kTokens, kHidden), view(rows));
      std::vector<ops::SamplingRow> parameters(kTokens);
      for (uint32_t i = 0; i < kTokens; ++i) {
        parameters[i].temperature = kTemperature;
        parameters[i].counter[0] = i;
      }
      ops::sample_tokens(ctx, view(sampled), view(sampled_log_probs), logits,
                         Tensor(parameters.data(), DType::kU8, {},
                                {kTokens, static_cast<int64_t>(sizeof(ops::SamplingRow))}),
                         0, leaves);
    });
    const auto score = [&](int ranks) {
      std::pair<Floats, Floats> outcome;
      std::mutex mutex;
      run_on_tp(ranks, [&](const ops::Context& ctx, const Batch& batch, int tp, int rank) {
        const dist::Range own = own_rows(batch, ctx.groups), part = share(kVocabulary, tp, rank);
        Floats own_x = rows_of(x, kHidden, own), own_norm = norm,
               own_table = rows_of(table, kHidden, part), log_probs(kTokens), entropies(kTokens);
        std::vector<int32_t> rows, targets;
        for (int32_t i = 0; i < own.size(); ++i) rows.push_back(i);
        for (const int32_t token : sampled)
          targets.push_back(token >= part.begin && token < part.end
                                ? token - static_cast<int32_t>(part.begin)
                                : -1);
        const HeadSpec spec{kHidden, kVocabulary, 1e-6, leaves / tp};
        const HeadRows head_rows{view(rows), view(targets), batch.tp_rows};
        HeadOptions options{.temperature = kTemperature};
        options.max_logits_bytes = 3 * kVocabulary * 4;  // several chunks
        head_forward(ctx, spec, {view(own_norm), view(own_table, part.size(), kHidden)},
                     view(own_x, own.size(), kHidden), head_rows, options, view(log_probs),
                     view(entropies), nullptr);
        const std::lock_guard lock(mutex);
        if (rank == 0) outcome = {log_probs, entropies};
        EXPECT_EQ(outcome.first.empty() ? log_probs : outcome.first, log_probs) << rank;
      });
      return outcome;
    };
    const auto one = score(1), many = score(leaves);
    EXPECT_EQ(one.first, sampled_log_probs);
    EXPECT_EQ(many, one);
  }
}

// The error names the key of config.json and the size that is not divisible.
TEST(RowParallel, SizesThatDoNotDivideAreRefused) {
  const auto expect_refused = [](const auto& make, const std::string& what,
                                 const std::string& hint) {
    try {
      make();
      ADD_FAILURE() << "accepted: " << what;
    } catch (const Error& error) {
      EXPECT_NE(error.message().find(what), std::string::npos) << error.message();
      EXPECT_EQ(error.hint(), hint);
    }
  };
  const GqaSpec gqa{.hidden_size = 64, .num_heads = 12, .num_kv_heads = 4, .head_dim = 8};
  expect_refused([&] { narrow(gqa, {.tp = 8}); },
                 "num_attention_heads 12 % tensor_model_parallel_size 8 = 4", "set it to 6 or 12");
  expect_refused([&] { narrow(gqa, {.tp = 3}); },
                 "num_key_value_heads 4 % tensor_model_parallel_size 3 = 1", "set it to 2 or 4");
  expect_refused([&] { narrow(gqa, {.tp = 6}); },
                 "tensor_model_parallel_size 6 % num_key_value_heads 4 = 2", "set it to 4 or 8");
  expect_refused([] { narrow(DenseMlpSpec{.intermediate_size = 22}, {.tp = 4}); },
                 "intermediate_size 22 % tensor_model_parallel_size 4 = 2", "set it to 2 or 11");
  expect_refused([] { narrow(MlaSpec{.num_heads = 6}, {.tp = 4}); },
                 "num_attention_heads 6 % tensor_model_parallel_size 4 = 2", "set it to 3 or 6");
  MoeMlpSpec moe{.hidden_size = 64,
                 .intermediate_size = 16,
                 .router = {.num_experts = 4},
                 .shared = DenseMlpSpec{}};
  moe.shared->intermediate_size = 2 * moe.intermediate_size;
  expect_refused([&] { narrow(moe, {.tp = 3}); },
                 "moe_intermediate_size x n_shared_experts 32 % tensor_model_parallel_size 3 = 2",
                 "set it to 2 or 4");
  const ModelSpec spec = random_spec("qwen3",
                                     {.vocab_size = 30,
                                      .hidden_size = 32,
                                      .intermediate_size = 48,
                                      .head_dim = 8,
                                      .max_positions = 16,
                                      .num_heads = 8},
                                     0.1);
  expect_refused([&] { narrow(spec, {.tp = 4}); },
                 "vocab_size 30 % tensor_model_parallel_size 4 = 2", "set it to 3 or 5");
  expect_refused([&] { Decoder(spec, {}, 8, whole_model(spec), {.tp = 2}, 4); },
                 "2 tensor-parallel ranks cannot compute sums of 4 leaves",
                 "use as many leaves as tensor-parallel ranks, or one rank");
}

}  // namespace
}  // namespace slimexx::model
