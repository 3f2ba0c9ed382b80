// Tests log-softmax over the vocabulary on the device, with and without logits in memory.
#include <bit>
#include <limits>

#include "cpu_context.h"
#include "ops/cuda/cuda_testing.h"
#include "ops/op_cases.h"
#include "slimexx/ops/log_prob.h"
#include "slimexx/ops/matmul.h"

namespace slimexx::ops::testing {
namespace {

class LogProbCuda : public DeviceTest {};

// Tolerances: the device adds exponentials in another order, with other implementations of exp and
// log.
constexpr double kRelative = 2e-6, kAbsolute = 8e-6;

std::vector<cases::RowsCase> all_cases() {
  std::vector<cases::RowsCase> all = cases::log_prob_values();
  for (const auto& c : cases::log_prob_gradients()) all.push_back(c);
  all.insert(all.end(), {{70, 1024}, {5, 61}});
  return all;
}

std::vector<int32_t> some_targets(const cases::RowsCase& c) {
  std::vector<int32_t> targets;
  for (int64_t r = 0; r < c.rows; ++r)
    targets.push_back(static_cast<int32_t>((r * 7919 + c.columns - 1) % c.columns));
  return targets;
}

// Rows of f32 on the device, where each must be 16-byte aligned.
struct PaddedRows {
  int64_t columns, stride;
  OnDevice wide;
  explicit PaddedRows(const Array& rows)
      : columns(rows.view().dim(1)), stride((columns + 3) / 4 * 4), wide(as_is(pad(rows))) {}
  Array pad(const Array& rows) const {
    Array out({rows.view().dim(0), stride});
    out.fill(std::nanf(""));
    for (int64_t i = 0; i < rows.size(); ++i) out[i / columns * stride + i % columns] = rows[i];
    return out;
  }
  tensor::Tensor view() const { return wide.view().columns(0, columns); }
  Array back() const {
    const Array all = wide.back();
    Array out({all.view().dim(0), columns});
    for (int64_t i = 0; i < out.size(); ++i) out[i] = all[i / columns * stride + i % columns];
    return out;
  }
};

struct Result {
  Array logits, lse, log_probs, entropies;
};

Result on_cpu(const Array& raw, const std::vector<int32_t>& targets, float temperature) {
  const int64_t rows = raw.view().dim(0);
  Result r{raw.clone(), Array({rows}), Array({rows}), Array({rows})};
  normalize_logits(cpu_context(), r.logits, r.lse, temperature);
  gather_log_probs(cpu_context(), r.log_probs, r.entropies, r.logits, r.lse,
                   Array::integers(targets));
  return r;
}

Result on_device(const Array& raw, const std::vector<int32_t>& targets, float temperature) {
  const int64_t rows = raw.view().dim(0);
  const PaddedRows logits(raw);
  const OnDevice lse = as_is(Array({rows})), log_probs = as_is(Array({rows})),
                 entropies = as_is(Array({rows})), ids = integers_on_device(targets);
  run_op([&](const Context& s) { normalize_logits(s, logits.view(), lse, temperature); });
  run_op([&](const Context& s) {
    gather_log_probs(s, log_probs, entropies, logits.view(), lse, ids);
  });
  return {logits.back(), lse.back(), log_probs.back(), entropies.back()};
}

TEST_F(LogProbCuda, AgreesWithTheCpu) {
  for (const auto& c : all_cases())
    for (const float temperature : {1.0f, 0.7f}) {
      const auto targets = some_targets(c);
      const Array raw = Array::random({c.rows, c.columns}, 1, 4.0);
      const Result expected = on_cpu(raw, targets, temperature),
                   got = on_device(raw, targets, temperature);
      EXPECT_TRUE(close(got.log_probs, doubles(expected.log_probs), kRelative, kAbsolute))
          << c.columns;
      EXPECT_TRUE(close(got.entropies, doubles(expected.entropies), 1e-5, kAbsolute)) << c.columns;
      EXPECT_TRUE(same_bits(got.logits, expected.logits)) << "logits / temperature, " << c.columns;
      for (int64_t r = 0; r < c.rows; ++r)
        EXPECT_EQ(got.log_probs[r],
                  got.logits[r * c.columns + targets[static_cast<size_t>(r)]] - got.lse[r])
            << "one subtraction, row " << r << " of " << c.columns;
    }
}

// With tensor parallelism each rank holds a leaf. Merged, the leaves give the results of one rank.
TEST_F(LogProbCuda, LeavesAddUpToTheRow) {
  const int64_t rows = 5, v = 20480, minus_infinity_leaf = 2;
  for (const int64_t leaves : {1, 2, 4}) {
    Array raw = Array::random({rows, v}, 9, 4.0);
    const int64_t width = v / leaves;
    if (leaves > minus_infinity_leaf)
      std::fill_n(raw.view().f32() + minus_infinity_leaf * width, width, -INFINITY);
    const std::vector<int32_t> targets{1, 700, 1024, 2047, 1500};
    const Result expected = on_cpu(raw, targets, 0.7f), whole = on_device(raw, targets, 0.7f);
    const OnDevice logits = as_is(raw), all = as_is(Array({leaves, rows})),
                   lse = as_is(Array({rows})), unused = as_is(Array({rows})),
                   none = integers_on_device(std::vector<int32_t>(rows, -1));
    const auto leaf = [&](int64_t l) { return logits.view().columns(l * width, (l + 1) * width); };
    run_op([&](const Context& s) {
      for (int64_t l = 0; l < leaves; ++l)
        normalize_logits(s, leaf(l), all.view().rows(l, l + 1).reshaped({rows}), 0.7f);
    });
    run_op([&](const Context& s) { merge_lse(s, lse, all); });
    Array sum({rows});
    for (int64_t l = 0; l < leaves; ++l) {
      const OnDevice entropies = as_is(Array({rows}));
      run_op([&](const Context& s) { gather_log_probs(s, unused, entropies, leaf(l), lse, none); });
      const Array own = entropies.back();
      for (int64_t r = 0; r < rows; ++r) sum[r] += own[r];
    }
    EXPECT_TRUE(close(sum, doubles(expected.entropies), 1e-5, kAbsolute)) << leaves << " leaves";
    if (leaves == 1) {
      EXPECT_TRUE(same_bits(sum, whole.entropies));
    }
  }
}

TEST_F(LogProbCuda, RowsThatStartElsewhereAreRefused) {
  const OnDevice logits = as_is(Array({2, 61})), lse = as_is(Array({2}));
  expect_unserved([&](const Context& s) { normalize_logits(s, logits, lse, 1.0f); }, "rows of 61");
}

TEST_F(LogProbCuda, RowAloneHasTheBitsOfTheBatch) {
  const int64_t v = 20001;
  const Array raw = Array::random({5, v}, 1);
  const std::vector<int32_t> targets{1, 2, 3, 20000, 8192};
  const Result batch = on_device(raw, targets, 0.9f);
  for (int64_t r = 0; r < 5; ++r) {
    Array alone({1, v});
    std::copy_n(raw.view().f32() + r * v, v, alone.view().f32());
    const Result one = on_device(alone, {targets[static_cast<size_t>(r)]}, 0.9f);
    EXPECT_TRUE(same_bits(one.log_probs, batch.log_probs.view().rows(r, r + 1))) << r;
    EXPECT_TRUE(same_bits(one.entropies, batch.entropies.view().rows(r, r + 1))) << r;
    EXPECT_TRUE(same_bits(one.lse, batch.lse.view().rows(r, r + 1))) << r;
  }
}

// dlogits on the device, bf16; with or without the entropy term.
Array device_gradient(const Result& r, const std::vector<int32_t>& targets, const Array& dlp,
                      const Array& dh, float temperature) {
  const PaddedRows logits(r.logits);
  const OnDevice lse = as_is(r.lse), ids = integers_on_device(targets), edlp = as_is(dlp),
                 edh = as_is(dh), entropies = dh.view().defined() ? as_is(r.entropies) : OnDevice(),
                 out(r.logits.clone());
  run_op([&](const Context& s) {
    log_probs_backward(s, out, logits.view(), lse, ids, entropies, edlp, edh, temperature);
  });
  return out.back();
}

TEST_F(LogProbCuda, GradientsAgreeWithTheCpu) {
  for (const auto& c : all_cases())
    for (const float temperature : {1.0f, 1.6f})
      for (const bool with_entropy : {true, false}) {
        const auto targets = some_targets(c);
        const Array raw = Array::random({c.rows, c.columns}, 1), dlp = Array::random({c.rows}, 2),
                    dh = with_entropy ? Array::random({c.rows}, 3) : Array();
        const Result r = on_cpu(raw, targets, temperature);
        const Array expected({c.rows, c.columns});
        log_probs_backward(cpu_context(), expected, r.logits, r.lse, Array::integers(targets),
                           with_entropy ? r.entropies.view() : tensor::Tensor(), dlp, dh,
                           temperature);
        EXPECT_TRUE(within_ulp(device_gradient(r, targets, dlp, dh, temperature), expected, 2e-6))
            << c.columns << ", entropy " << with_entropy << ", seed 1";
      }
}

TEST_F(LogProbCuda, MaskedLogitsHaveNoMass) {
  Array raw = Array::random({1, 100}, 1);
  for (int64_t i = 10; i < 100; ++i) raw[i] = -std::numeric_limits<float>::infinity();
  const Result got = on_device(raw, {3}, 1.0f), expected = on_cpu(raw, {3}, 1.0f);
  EXPECT_TRUE(close(got.log_probs, doubles(expected.log_probs), kRelative, kAbsolute));
  EXPECT_TRUE(close(got.entropies, doubles(expected.entropies), 1e-5, kAbsolute));
  const Array one = Array::of({1.0f}, {1}), d = device_gradient(got, {3}, one, one, 1.0f);
  for (int64_t i = 10; i < 100; ++i) EXPECT_EQ(d[i], 0.0f) << i;
}

TEST_F(LogProbCuda, LeavesMergeAsOnTheCpu) {
  const Array leaves = Array::random({4, 300}, 1, 3.0), expected({300});
  merge_lse(cpu_context(), expected, leaves);
  const OnDevice on_device = as_is(leaves), lse = as_is(Array({300}));
  run_op([&](const Context& s) { merge_lse(s, lse, on_device); });
  EXPECT_TRUE(close(lse.back(), doubles(expected), kRelative, 1e-6));
}

// Target -1: a token of another leaf.
TEST_F(LogProbCuda, TargetsOfOtherLeavesGiveZero) {
  const Array raw = Array::random({2, 100}, 1);
  const Result got = on_device(raw, {-1, 7}, 1.0f), expected = on_cpu(raw, {-1, 7}, 1.0f);
  EXPECT_EQ(got.log_probs[0], 0.0f);
  EXPECT_TRUE(close(got.log_probs, doubles(expected.log_probs), kRelative, kAbsolute));
}

struct HeadCase {
  int64_t rows, vocabulary, size;
};
// The last two shapes need logits in memory.
std::vector<HeadCase> head_cases() {
  return {{1, 256, 64},     {5, 1024, 128}, {70, 5000, 256},
          {130, 1272, 512}, {9, 1001, 64},  {7, 264, 61}};
}

struct Head {
  Array hidden, w, dlp, dh;
  std::vector<int32_t> targets;
  explicit Head(const HeadCase& c)
      : hidden(random_bf16({c.rows, c.size}, 1)),
        w(random_bf16({c.vocabulary, c.size}, 2, 0.2)),
        dlp(Array::random({c.rows}, 3)),
        dh(Array::random({c.rows}, 4, 0.1)),
        targets(some_targets({c.rows, c.vocabulary})) {}
};

struct HeadOnDevice {
  OnDevice hidden, w, ids, dlp, dh;  // dh undefined without entropies
  HeadOnDevice(const Head& h, bool with_entropy)
      : hidden(h.hidden),
        w(h.w),
        ids(integers_on_device(h.targets)),
        dlp(as_is(h.dlp)),
        dh(with_entropy ? as_is(h.dh) : OnDevice()) {}
};

// Calls body(case, operands, temperature, with_entropy) for all combinations.
template <class Body>
void for_each_head(const Body& body) {
  for (const HeadCase& c : head_cases())
    for (const float temperature : {1.0f, 0.7f})
      for (const bool with_entropy : {true, false}) {
        SCOPED_TRACE(std::to_string(c.rows) + "x" + std::to_string(c.vocabulary) + "x" +
                     std::to_string(c.size) + ", temperature " + std::to_string(temperature) +
                     (with_entropy ? ", entropies" : ""));
        body(c, HeadOnDevice(Head(c), with_entropy), temperature, with_entropy);
      }
}

// The fused LM head has the bits of the product into f32 logits followed by the ops on them.
TEST_F(LogProbCuda, LmHeadHasTheBitsOfItsParts) {
  for_each_head([](const HeadCase& c, const HeadOnDevice& h, float temperature, bool with_entropy) {
    const auto& [hidden, w, ids, dlp, dh] = h;
    const PaddedRows logits(Array({c.rows, c.vocabulary}));
    const Array blank({c.rows});
    const OnDevice lse = as_is(blank), log_probs = as_is(blank),
                   entropies = with_entropy ? as_is(blank) : OnDevice(), own_lse = as_is(blank),
                   own_log_probs = as_is(blank),
                   own_entropies = with_entropy ? as_is(blank) : OnDevice();
    run_op([&](const Context& s) { matmul_forward(s, logits.view(), hidden, {w}); });
    run_op([&](const Context& s) { normalize_logits(s, logits.view(), lse, temperature); });
    run_op([&](const Context& s) {
      gather_log_probs(s, log_probs, entropies, logits.view(), lse, ids);
    });
    run_op([&](const Context& s) {
      lm_head_forward(s, own_log_probs, own_entropies, own_lse, hidden, w, ids, temperature);
    });
    EXPECT_TRUE(same_bits(own_lse.back(), lse.back())) << "lse";
    EXPECT_TRUE(same_bits(own_log_probs.back(), log_probs.back())) << "log-probs";
    if (with_entropy) {
      EXPECT_TRUE(same_bits(own_entropies.back(), entropies.back())) << "entropies";
    }
    // The device's products need gradient rows that are 16-byte aligned.
    const Array zeros({c.rows, (c.vocabulary + 7) / 8 * 8});
    const OnDevice wide(zeros), own_wide(zeros);
    const auto columns = [&](const OnDevice& x) { return x.view().columns(0, c.vocabulary); };
    run_op([&](const Context& s) {
      log_probs_backward(s, columns(wide), logits.view(), lse, ids, entropies, dlp, dh,
                         temperature);
    });
    run_op([&](const Context& s) {
      lm_head_backward_logits(s, columns(own_wide), hidden, w, own_lse, ids, own_entropies, dlp, dh,
                              temperature);
    });
    EXPECT_TRUE(same_bits(own_wide.back(), wide.back())) << "dlogits";
  });
}

// Reads the bf16 values that fill the first half of each f32 row.
Array first_halves(const Array& rows) {
  const int64_t num_rows = rows.view().dim(0), columns = rows.view().dim(1);
  Array out({num_rows, columns});
  for (int64_t i = 0; i < out.size(); ++i) {
    const int64_t column = i % columns;
    const auto pair = std::bit_cast<uint32_t>(rows[i - column + column / 2]);
    out[i] = std::bit_cast<float>(column % 2 == 0 ? pair << 16 : pair & 0xffff0000u);
  }
  return out;
}

TEST_F(LogProbCuda, KeptLogitsGiveTheBitsOfThoseMadeAgain) {
  for_each_head([](const HeadCase& c, const HeadOnDevice& h, float temperature, bool with_entropy) {
    const auto& [hidden, w, ids, dlp, dh] = h;
    if (!can_keep_logits(w)) return;
    const Array blank({c.rows}), zeros({c.rows, c.vocabulary});
    const OnDevice product = as_is(zeros), logits = as_is(zeros), again(zeros), lse = as_is(blank),
                   log_probs = as_is(blank), plain = as_is(blank),
                   entropies = with_entropy ? as_is(blank) : OnDevice();
    run_op([&](const Context& s) { matmul_forward(s, product, hidden, {w}); });
    run_op([&](const Context& s) {
      lm_head_forward(s, plain, entropies, lse, hidden, w, ids, temperature);
    });
    run_op([&](const Context& s) {
      lm_head_forward(s, log_probs, entropies, lse, hidden, w, ids, temperature, logits);
    });
    EXPECT_TRUE(same_bits(logits.back(), product.back())) << "logits";
    EXPECT_TRUE(same_bits(log_probs.back(), plain.back())) << "log-probs";
    run_op([&](const Context& s) {
      lm_head_backward_logits(s, again, hidden, w, lse, ids, entropies, dlp, dh, temperature);
    });
    const tensor::Tensor halves(logits.view().raw(), tensor::DType::kBF16, logits.view().device(),
                                {c.rows, 2 * c.vocabulary});
    run_op([&](const Context& s) {
      lm_head_kept_backward(s, halves.columns(0, c.vocabulary), logits, lse, ids, entropies, dlp,
                            dh, temperature);
    });
    EXPECT_TRUE(same_bits(first_halves(logits.back()), again.back())) << "dlogits";
  });
}

TEST_F(LogProbCuda, LmHeadRowAloneHasTheBitsOfTheBatch) {
  const Head h({70, 5000, 256});
  const OnDevice hidden(h.hidden), w(h.w), ids = integers_on_device(h.targets);
  const auto run = [&](int64_t begin, int64_t end) {
    const Array blank({end - begin});
    const OnDevice log_probs = as_is(blank), entropies = as_is(blank), lse = as_is(blank);
    run_op([&](const Context& s) {
      lm_head_forward(s, log_probs, entropies, lse, hidden.view().rows(begin, end), w,
                      ids.view().rows(begin, end), 0.8f);
    });
    return std::vector<Array>{log_probs.back(), entropies.back(), lse.back()};
  };
  const std::vector<Array> batch = run(0, 70);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 1}, {69, 70}, {5, 8}, {3, 67}}) {
    const std::vector<Array> part = run(begin, end);
    for (size_t i = 0; i < part.size(); ++i)
      EXPECT_TRUE(same_bits(part[i], batch[i].view().rows(begin, end)))
          << i << ", rows from " << begin;
  }
}

}  // namespace
}  // namespace slimexx::ops::testing
