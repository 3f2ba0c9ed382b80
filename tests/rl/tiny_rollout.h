// One rank's engine over a tiny golden checkpoint, prompts for it, and a grader that needs no text.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/rl/generation.h"
#include "train/tiny_policy.h"

namespace slimexx::rl {

struct TinyRollout {
  explicit TinyRollout(dist::Collective& communicator, rollout::EngineOptions options = {})
      : weights(model::bind_weights(policy.store, policy.spec)),
        engine(policy.decoder, weights, {}, with_bounds(options), nullptr, 0),
        generator(engine, dist::groups_of_one(), nullptr, communicator) {}

  static rollout::EngineOptions with_bounds(rollout::EngineOptions options) {
    if (options.max_total_tokens == 0) options.max_total_tokens = 2000;
    options.max_sequence_tokens = 64;
    return options;
  }

  train::TinyPolicy policy{"llama"};
  model::ModelParameters weights;
  rollout::Engine engine;
  Generator generator;
};

// Prompts of mixed lengths, some with a common prefix.
inline std::vector<data::Prompt> make_prompts(int n) {
  PhiloxStream random(5, 2);
  std::vector<data::Prompt> prompts;
  for (int p = 0; p < n; ++p) {
    data::Prompt prompt;
    prompt.index = p;
    const uint64_t length = 1 + random.next_below(24);
    std::vector<int32_t> tokens;
    for (uint64_t t = 0; t < length; ++t)
      tokens.push_back(t < 16 ? static_cast<int32_t>(3 + t)
                              : static_cast<int32_t>(3 + random.next_below(90)));
    prompt.tokens = data::PackedTokens(tokens);
    prompt.text = "prompt " + std::to_string(p);
    prompt.label = std::to_string(p);
    prompts.push_back(std::move(prompt));
  }
  return prompts;
}

// Groups of these prompts, numbered in order.
inline std::vector<PromptGroup> groups_of(const std::vector<data::Prompt>& prompts) {
  std::vector<PromptGroup> groups;
  for (const auto& p : prompts) groups.push_back({&p, std::ssize(groups)});
  return groups;
}

// The reward depends only on the sample's seed.
class SeedGrader : public reward::Grader {
 public:
  std::vector<reward::Grade> grade(std::span<const reward::RewardInput> inputs) override {
    std::vector<reward::Grade> grades;
    for (const auto& input : inputs) {
      const bool right = PhiloxStream(input.seed, 0).next_below(3) == 0;
      grades.push_back({.reward = right ? 1.0 : 0.0,
                        .reason = "label " + input.label + " of " + input.prompt,
                        .values = {},
                        .prediction = {}});
    }
    return grades;
  }
};

// Gives no grade for prompts labelled 1, and a grade with values for all other prompts.
class HalfGrader : public reward::Grader {
 public:
  std::vector<reward::Grade> grade(std::span<const reward::RewardInput> inputs) override {
    std::vector<reward::Grade> grades(inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      grades[i].failed = inputs[i].label == "1" || fails_always;
      grades[i].reason = grades[i].failed ? "no such label" : "fine";
      grades[i].reward = 1;
      grades[i].values = {{"acc", 0.5}};
      grades[i].prediction = "p" + inputs[i].label;
    }
    return grades;
  }
  bool fails_always = false;
};

// The content of the samples, bit for bit, without fields about how they were generated.
inline std::string content(std::vector<Sample> samples) {
  for (auto& s : samples) s.cached_tokens = 0;
  return pack_samples(samples);
}

}  // namespace slimexx::rl
