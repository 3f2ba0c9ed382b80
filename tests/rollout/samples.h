// Mixed requests, and the log-probs that training computes for their responses.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>

#include <bit>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/random_model.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

using model::RandomModel;

// A model small enough to be fast on the CPU.
inline model::ModelSpec tiny_spec(const std::string& family, int64_t num_layers = 2) {
  return model::random_spec(family,
                            {.vocab_size = 61,
                             .hidden_size = 32,
                             .intermediate_size = 40,
                             .head_dim = 8,
                             .max_positions = 128,
                             .num_layers = num_layers},
                            0.25);
}

inline Request make_request(int64_t id, std::vector<TokenId> prompt, int64_t max_new_tokens) {
  Request request;
  request.id = id;
  request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
  request.sampling.max_new_tokens = max_new_tokens;
  request.name = {.seed = 9, .group = static_cast<uint64_t>(id)};
  return request;
}

struct PackedSamples {
  std::vector<int32_t> tokens, positions, cu_seqlens{0}, rows, targets;
};

inline PackedSamples pack(const std::vector<Request>& requests,
                          const std::vector<Completion>& completions) {
  PackedSamples packed;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<TokenId> sample = *requests[i].prompt;
    const size_t num_prompt = sample.size();
    sample.insert(sample.end(), completions[i].tokens.begin(), completions[i].tokens.end());
    for (size_t t = 0; t < sample.size(); ++t) {
      if (t >= num_prompt) {
        packed.rows.push_back(static_cast<int32_t>(packed.tokens.size()) - 1);
        packed.targets.push_back(sample[t]);
      }
      packed.tokens.push_back(sample[t]);
      packed.positions.push_back(static_cast<int32_t>(t));
    }
    packed.cu_seqlens.push_back(static_cast<int32_t>(packed.tokens.size()));
  }
  return packed;
}

// The trainer's log-probs for the responses: one packed forward with a tape, and the head.
inline std::vector<float> training_log_probs(const RandomModel& own, const PackedSamples& packed,
                                             float temperature) {
  std::vector<float> log_probs(packed.rows.size());
  const auto run = [&](const ops::Context& ctx) {
    const auto put = [&](const std::vector<int32_t>& values) {
      const tensor::Tensor t =
          ctx.arena.allocate(tensor::DType::kI32, {static_cast<int64_t>(values.size())});
      tensor::upload(ctx.stream, t, values.data());
      return t;
    };
    model::Batch batch;
    batch.tokens = put(packed.tokens);
    batch.positions = put(packed.positions);
    batch.attention.cu_seqlens = packed.cu_seqlens;
    batch.attention.device_cu_seqlens = put(packed.cu_seqlens);
    const tensor::Tensor rows = put(packed.rows), targets = put(packed.targets),
                         out = ctx.arena.allocate(tensor::DType::kF32,
                                                  {static_cast<int64_t>(log_probs.size())});
    model::Tape tape;
    const tensor::Tensor x = own.decoder.forward(ctx, own.weights, batch, &tape);
    model::HeadOptions options{.temperature = temperature};
    options.max_logits_bytes =
        7 * own.spec.vocab_size * 4;  // gives several chunks if there are enough rows
    model::head_forward(ctx, own.decoder.local_spec().head(), own.weights.head, x, {rows, targets},
                        options, out, {}, nullptr);
    tensor::download(ctx.stream, log_probs.data(), out);
  };
  tensor::Arena plan = tensor::Arena::for_planning(own.device, "test");
  run(ops::planning_context(plan));
  tensor::Arena arena(own.device, plan.high_water_bytes(), "test");
  run(ops::compute_context(arena));
  return log_probs;
}

// Mixed requests: groups of four samples, prompts with common prefixes, various lengths and
// sampling parameters.
inline std::vector<Request> mixed_requests(int num_prompts, uint64_t seed, TokenId vocab_size) {
  std::vector<Request> requests;
  PhiloxStream random(seed, 3);
  for (int p = 0; p < num_prompts; ++p) {
    std::vector<TokenId> prompt;
    const uint64_t length = 1 + random.next_below(70);
    for (uint64_t t = 0; t < length; ++t)
      prompt.push_back(t < 20 ? static_cast<TokenId>(t * 7 + 3) % vocab_size
                              : static_cast<TokenId>(random.next_below(61)));
    const auto shared = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    for (uint32_t sample = 0; sample < 4; ++sample) {
      Request request;
      request.id = static_cast<int64_t>(requests.size());
      request.prompt = shared;
      request.sampling.max_new_tokens = static_cast<int64_t>(1 + random.next_below(45));
      request.sampling.temperature = sample % 2 == 0 ? 1.0f : 0.7f;
      request.sampling.greedy = sample == 0;
      if (sample == 2) request.sampling.top_p = 0.8f;
      if (sample == 3) request.sampling.top_k = 5;
      if (sample == 3 && p % 2 == 1) request.sampling.min_p = 0.1f;
      if (p % 3 == 2) request.sampling.stop_token_ids = {11, 12, 13};
      request.name = {
          .seed = 1234, .group = (uint64_t{3} << 32) + static_cast<uint64_t>(p), .sample = sample};
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

inline void expect_same(const Completion& actual, const Completion& expected,
                        const std::string& what) {
  EXPECT_EQ(actual.tokens, expected.tokens) << what << ", request " << expected.id;
  EXPECT_EQ(actual.finish, expected.finish) << what << ", request " << expected.id;
  ASSERT_EQ(actual.log_probs.size(), expected.log_probs.size())
      << what << ", request " << expected.id;
  for (size_t i = 0; i < expected.log_probs.size(); ++i)
    ASSERT_EQ(std::bit_cast<uint32_t>(actual.log_probs[i]),
              std::bit_cast<uint32_t>(expected.log_probs[i]))
        << what << ", request " << expected.id << ", token " << i << ": " << actual.log_probs[i]
        << " for " << expected.log_probs[i];
}

}  // namespace slimexx::rollout
