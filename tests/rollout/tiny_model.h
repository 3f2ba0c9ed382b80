// Small random models of every dense family, and the log-probs that training computes for a sample.
#pragma once
#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/model/families.h"
#include "slimexx/model/transformer.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

inline model::ModelSpec tiny_spec(const std::string& family) {
  model::ModelSpec spec;
  spec.family = family;
  spec.vocab_size = 61;
  spec.hidden_size = 32;
  spec.num_layers = 2;
  spec.intermediate_size = 40;
  spec.num_heads = 4;
  spec.num_kv_heads = 2;
  spec.head_dim = 8;
  spec.max_positions = 128;
  spec.rope.rotary_dim = 8;
  spec.initializer_range = 0.25;
  spec.layers.assign(static_cast<size_t>(spec.num_layers), {});
  if (family == "qwen2") spec.qkv_bias = true;
  if (family == "qwen3") spec.qk_norm = spec.tied_embeddings = true;
  if (family == "glm4") {
    spec.sandwich_norms = spec.fused_gate_up = spec.qkv_bias = true;
    spec.rope.style = ops::RotaryStyle::kInterleaved;
    spec.rope.rotary_dim = 4;
  }
  return spec;
}

struct TinyModel {
  model::ModelSpec spec;
  tensor::Device device;
  model::ParameterStore store;
  model::Transformer transformer;
  model::ModelParameters weights;

  explicit TinyModel(const model::ModelSpec& spec_in)
      : spec(spec_in), store(spec, device, false), transformer(spec, device, spec.max_positions) {
    model::init_random_weights(store, spec, 5);
    // Norms and biases of their own, which init leaves at one and zero.
    PhiloxStream random(17, 4);
    for (const model::ParameterInfo& info : store.infos()) {
      if (info.shape.size() != 1) continue;
      const tensor::Tensor weight = store.weight(info.name);
      for (int64_t i = 0; i < weight.num_elements(); ++i)
        weight.f32()[i] += 0.2f * static_cast<float>(random.next_normal());
    }
    weights = model::bind_weights(store, spec);
  }
};

struct PackedSamples {
  std::vector<int32_t> tokens, positions, cu_seqlens{0}, rows, targets;
};

inline PackedSamples pack(const std::vector<Request>& requests,
                          const std::vector<Generation>& generations) {
  PackedSamples packed;
  for (size_t i = 0; i < requests.size(); ++i) {
    std::vector<TokenId> sample = *requests[i].prompt;
    const size_t num_prompt = sample.size();
    sample.insert(sample.end(), generations[i].tokens.begin(), generations[i].tokens.end());
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

// What the trainer computes for the responses: one packed forward with a tape, and the head.
inline std::vector<float> training_log_probs(const TinyModel& tiny, PackedSamples packed,
                                             float temperature) {
  const auto view = [&](std::vector<int32_t>& values) {
    return tensor::Tensor(values.data(), tensor::DType::kI32, tiny.device,
                          {static_cast<int64_t>(values.size())});
  };
  model::Batch batch;
  batch.tokens = view(packed.tokens);
  batch.positions = view(packed.positions);
  batch.attention.cu_seqlens = packed.cu_seqlens;
  std::vector<float> log_probs(packed.rows.size());
  const tensor::Tensor out(log_probs.data(), tensor::DType::kF32, tiny.device,
                           {static_cast<int64_t>(log_probs.size())});
  const auto run = [&](tensor::Stream stream, tensor::Arena& arena) {
    model::Tape tape;
    const tensor::Tensor x = tiny.transformer.forward(stream, arena, tiny.weights, batch, &tape);
    model::HeadOptions options{.temperature = temperature};
    options.max_logits_bytes = 7 * tiny.spec.vocab_size * 4;  // several chunks
    model::head_forward(stream, arena, tiny.spec, tiny.weights, x, view(packed.rows),
                        view(packed.targets), options, out, {}, nullptr);
  };
  tensor::Arena plan = tensor::Arena::for_planning(tiny.device, "test");
  run({.device = tiny.device, .is_planning = true}, plan);
  tensor::Arena arena(tiny.device, plan.high_water_bytes(), "test");
  run({.device = tiny.device}, arena);
  return log_probs;
}

// Requests of all kinds: groups of four samples, prompts that begin alike, mixed lengths and
// sampling.
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
          .seed = 1234, .rollout = 3, .prompt = static_cast<uint32_t>(p), .sample = sample};
      requests.push_back(std::move(request));
    }
  }
  return requests;
}

inline void expect_same(const Generation& actual, const Generation& expected,
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
