// A tiny golden checkpoint as a trainable policy, and samples for it.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>
#include <span>
#include <utility>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/float_vectors.h"
#include "dist/data_parallel_groups.h"
#include "model/flat_store.h"
#include "slimexx/base/philox.h"
#include "slimexx/dist/collective.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/families.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/trainer.h"
#include "test_paths.h"

namespace slimexx::train {

inline std::string golden_model(const std::string& name) {
  return test_data_path("golden/models/") + name;
}

inline TrainOptions packed(int64_t max_tokens, bool balance = true) {
  TrainOptions options;
  options.max_tokens_per_gpu = max_tokens;
  options.balance_data = balance;
  return options;
}

// One rank's copy of the policy.
struct TinyPolicy {
  explicit TinyPolicy(const std::string& name = "qwen3_tied_mqa")
      : folder(io::HfFolder::open(golden_model(name))),
        spec(model::read_model_spec(folder.config(), golden_model(name) + "/config.json")),
        decoder(spec, {}, 128),
        store(spec, {}, true) {
    model::load_hf_weights(store, spec, folder);
  }
  Trainer trainer(dist::Collective& communicator, const TrainOptions& options = {},
                  const OptimizerOptions& optimizer = {}, int64_t min_part_elements = 0) {
    return trainer(communicator, communicator, options, optimizer, min_part_elements);
  }
  // Reduces and gathers over `dp`, which has the same ranks as `host`.
  Trainer trainer(dist::Collective& host, dist::Collective& dp, const TrainOptions& options,
                  const OptimizerOptions& optimizer, int64_t min_part_elements) {
    return Trainer(decoder, store, host, dist::data_parallel_groups(dp), options, optimizer, 0.9f,
                   {}, min_part_elements);
  }
  io::HfFolder folder;
  model::ModelSpec spec;
  model::Decoder decoder;
  model::ParameterStore store;
};

inline std::vector<float> floats_of(const tensor::Tensor& t) {
  return {t.f32(), t.f32() + t.num_elements()};
}

// Part size that gives small models a part per layer, as large models have.
inline constexpr int64_t kAPartALayer = 1;

// Gathers a state array from all owners, in the order of the flat parameters, with gaps.
inline std::vector<float> gather_state(dist::Collective& communicator, const OwnedGroup& group,
                                       const tensor::Tensor& own) {
  const auto& slices = group.slices;
  int64_t num_elements = 0;
  for (const auto& slice : slices) num_elements = std::max(num_elements, slice.end);
  std::vector<float> all(static_cast<size_t>(num_elements));
  for (const OwnedPiece& piece : group.pieces) {
    const tensor::Tensor held = own.rows(piece.begin, piece.begin + piece.range.size());
    tensor::convert_elements(own.dtype(), held.raw(), tensor::DType::kF32,
                             all.data() + piece.range.begin, piece.range.size());
  }
  const auto ranks = static_cast<size_t>(communicator.size());
  const tensor::Tensor values(all.data(), tensor::DType::kF32, {}, {num_elements});
  for (size_t first = 0; first < slices.size(); first += ranks)
    communicator.all_gather_ranges({}, values, std::span(slices).subspan(first, ranks));
  return all;
}

// Prompts and responses of mixed lengths with masked tokens, near-on-policy log-probs and mixed
// advantages; the third sample is fully masked.
inline std::vector<Sample> mixed_samples(int n, uint64_t seed, int32_t vocab_size = 96) {
  PhiloxStream random(seed, 6);
  std::vector<Sample> samples;
  for (int i = 0; i < n; ++i) {
    Sample s;
    s.response_length = static_cast<int64_t>(1 + random.next_below(24));
    const auto length = static_cast<uint64_t>(s.response_length) + 1 + random.next_below(12);
    for (uint64_t t = 0; t < length; ++t)
      s.tokens.push_back(
          static_cast<int32_t>(random.next_below(static_cast<uint64_t>(vocab_size))));
    for (int64_t t = 0; t < s.response_length; ++t) {
      s.loss_mask.push_back(i != 2 && random.next_below(5) > 0);
      s.advantages.push_back(static_cast<float>(random.next_normal()));
      const double base = -4 + 0.5 * random.next_normal();
      s.old_log_probs.push_back(static_cast<float>(base));
      s.ref_log_probs.push_back(static_cast<float>(base + 0.3 * random.next_normal()));
      s.rollout_log_probs.push_back(static_cast<float>(base + 0.3 * random.next_normal()));
    }
    samples.push_back(std::move(s));
  }
  return samples;
}

// A loss with every term of a policy loss.
inline StepLoss full_loss() {
  StepLoss loss;
  loss.policy = {.eps_clip = 0.2f,
                 .eps_clip_high = 0.28f,
                 .eps_clip_c = 3.0f,
                 .entropy_coef = 0.01f,
                 .use_kl = true,
                 .kl_coef = 0.05f,
                 .tis = ops::TisMode::kTruncate};
  return loss;
}

}  // namespace slimexx::train
