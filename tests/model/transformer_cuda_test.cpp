// Whole models of every family: bf16 on the device against f32 on the CPU from the same weights,
// and the bits that must not depend on packing or recomputation.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>

#include "model/random_model_cuda.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

using tensor::DType;

// By tensor, of bf16 activations against f32 ones, over two layers.
constexpr double kLogProbBound = 5e-3;
constexpr double kGradientBound = 3e-2;

struct Sequences {
  std::vector<int32_t> tokens, positions, cu{0}, rows, targets;
};

// Of every sequence all rows but the last one predict; the targets are the next tokens.
Sequences make_sequences(const std::vector<int32_t>& lengths, int64_t vocabulary, uint64_t seed) {
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

Sequences only(const Sequences& all, size_t b) {
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
  std::vector<std::vector<float>> gradients;  // by parameter; empty without backward
};

class Pass {
 public:
  Pass(RandomModel& model, const Sequences& s, Recompute recompute, bool backward)
      : model_(model), s_(s), recompute_(recompute), backward_(backward) {}

  Outcome run() {
    tensor::Arena plan = tensor::Arena::for_planning(model_.device, "test");
    run_on(tensor::planning_stream(model_.device, plan), plan);
    tensor::Arena arena(model_.device, plan.high_water_bytes(), "test");
    const Stream stream = tensor::compute_stream(model_.device);
    if (backward_) ops::fill_zero(stream, model_.store.flat_gradients());
    run_on(stream, arena);
    if (backward_)
      for (const ParameterInfo& info : model_.store.infos())
        outcome_.gradients.push_back(values(stream, model_.store.gradient(info.name)));
    return outcome_;
  }

 private:
  static std::vector<float> values(Stream stream, Tensor x) {
    std::vector<float> out(static_cast<size_t>(x.num_elements()));
    tensor::download(stream, out.data(), x);
    return out;
  }
  static Tensor put(Stream stream, Arena& arena, const std::vector<int32_t>& values) {
    const Tensor t = arena.allocate(DType::kI32, {static_cast<int64_t>(values.size())});
    tensor::upload(stream, t, values.data());
    return t;
  }
  Tensor put_random(Stream stream, Arena& arena, uint64_t seed) const {
    PhiloxStream random(seed, 6);
    std::vector<float> numbers;
    for (size_t i = 0; i < s_.rows.size(); ++i)
      numbers.push_back(static_cast<float>(random.next_normal()));
    const Tensor t = arena.allocate(DType::kF32, {static_cast<int64_t>(numbers.size())});
    tensor::upload(stream, t, numbers.data());
    return t;
  }
  void run_on(Stream stream, Arena& arena) {
    Batch batch;
    batch.tokens = put(stream, arena, s_.tokens);
    batch.positions = put(stream, arena, s_.positions);
    batch.attention.cu_seqlens = s_.cu;
    if (!stream.device.is_cpu()) batch.attention.device_cu_seqlens = put(stream, arena, s_.cu);
    const Tensor rows = put(stream, arena, s_.rows), targets = put(stream, arena, s_.targets);
    const auto n = static_cast<int64_t>(s_.rows.size());
    const Tensor log_probs = arena.allocate(DType::kF32, {n}),
                 entropies = arena.allocate(DType::kF32, {n});
    HeadOptions options{.temperature = 0.9f};
    options.max_logits_bytes = 50 * model_.spec.vocab_size * 4;  // several chunks
    Tape tape{.recompute = recompute_, .layers = {}};
    HeadTape head_tape;
    const Tensor x = model_.transformer.forward(stream, arena, model_.weights, batch,
                                                backward_ ? &tape : nullptr);
    head_forward(stream, arena, model_.spec, model_.weights, x, rows, targets, options, log_probs,
                 entropies, backward_ ? &head_tape : nullptr);
    if (!stream.is_planning) {
      outcome_.log_probs = values(stream, log_probs);
      outcome_.entropies = values(stream, entropies);
    }
    if (!backward_) return;
    const ModelParameters gradients = bind_gradients(model_.store, model_.spec);
    const Tensor dlog_probs = put_random(stream, arena, 1),
                 dentropies = put_random(stream, arena, 2);
    const Tensor dx = arena.allocate(tensor::compute_dtype(stream.device), {x.dim(0), x.dim(1)});
    head_backward(stream, arena, model_.spec, model_.weights, gradients, rows, targets, options,
                  head_tape, entropies, dlog_probs, dentropies, dx);
    model_.transformer.backward(stream, arena, model_.weights, gradients, batch, tape, dx);
  }

  RandomModel& model_;
  const Sequences& s_;
  Recompute recompute_;
  bool backward_;
  Outcome outcome_;
};

double relative_distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    norm += double{b[i]} * b[i];
  }
  return std::sqrt(difference / norm);
}

std::string first_difference(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size())
    return std::to_string(a.size()) + " against " + std::to_string(b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i]))
      return "element " + std::to_string(i) + ": " + std::to_string(a[i]) + " against " +
             std::to_string(b[i]);
  return "";
}

class TransformerCuda : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
    tensor::select_device(test_device());
  }
  const ModelSpec spec_ = device_spec(GetParam(), 0.08);
  const Sequences s_ = make_sequences({37, 2, 70, 131}, spec_.vocab_size, 3);
};

TEST_P(TransformerCuda, LogProbsAndGradientsAgreeWithTheCpu) {
  RandomModel cpu(spec_, {}, true), device(spec_, test_device(), true);
  const Outcome expected = Pass(cpu, s_, Recompute::kNone, true).run();
  const Outcome got = Pass(device, s_, Recompute::kNone, true).run();
  const double log_probs = relative_distance(got.log_probs, expected.log_probs);
  EXPECT_LT(log_probs, kLogProbBound) << "seed 3";
  EXPECT_LT(relative_distance(got.entropies, expected.entropies), kLogProbBound) << "seed 3";
  double largest = 0;
  std::string where;
  const auto& infos = cpu.store.infos();
  ASSERT_EQ(got.gradients.size(), infos.size());
  for (size_t i = 0; i < infos.size(); ++i) {
    const double distance = relative_distance(got.gradients[i], expected.gradients[i]);
    EXPECT_LT(distance, kGradientBound) << infos[i].name << ", seed 3";
    if (!(distance <= largest)) largest = distance, where = infos[i].name;
  }
  std::printf("%s: log-probs differ by %.2e of their norm, gradients by at most %.2e (%s)\n",
              GetParam().c_str(), log_probs, largest, where.c_str());
}

TEST_P(TransformerCuda, RecomputationAndRunsChangeNoBit) {
  RandomModel device(spec_, test_device(), true);
  const Outcome kept = Pass(device, s_, Recompute::kNone, true).run();
  for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
    const Outcome again = Pass(device, s_, recompute, true).run();
    EXPECT_EQ(first_difference(again.log_probs, kept.log_probs), "");
    EXPECT_EQ(first_difference(again.entropies, kept.entropies), "");
    for (size_t i = 0; i < kept.gradients.size(); ++i)
      EXPECT_EQ(first_difference(again.gradients[i], kept.gradients[i]), "")
          << device.store.infos()[i].name;
  }
}

TEST_P(TransformerCuda, PackingChangesNoBit) {
  RandomModel device(spec_, test_device(), false);
  const Outcome all = Pass(device, s_, Recompute::kNone, false).run();
  size_t at = 0;
  for (size_t b = 0; b + 1 < s_.cu.size(); ++b) {
    const Sequences own = only(s_, b);
    const Outcome one = Pass(device, own, Recompute::kNone, false).run();
    const auto part = [&](const std::vector<float>& x) {
      const auto first = x.begin() + static_cast<int64_t>(at);
      return std::vector<float>(first, first + static_cast<int64_t>(own.rows.size()));
    };
    EXPECT_EQ(first_difference(one.log_probs, part(all.log_probs)), "") << "sequence " << b;
    EXPECT_EQ(first_difference(one.entropies, part(all.entropies)), "") << "sequence " << b;
    at += own.rows.size();
  }
}

TEST(TransformerCudaSizes, HeadsOfOtherSizesAreRefused) {
  if (tensor::count_cuda_devices() == 0) GTEST_SKIP() << "no CUDA device";
  for (const int64_t head_dim : {8, 80, 256}) {
    ModelSpec spec = device_spec("llama", 0.08);
    spec.head_dim = spec.rope.rotary_dim = head_dim;
    try {
      const Transformer refused(spec, test_device(), 64);
      ADD_FAILURE() << head_dim;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInput);
      EXPECT_NE(error.message().find("serves 64 and 128"), std::string::npos) << error.message();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TransformerCuda, testing::ValuesIn(device_families()),
                         [](const auto& parameter) { return parameter.param; });

}  // namespace
}  // namespace slimexx::model
