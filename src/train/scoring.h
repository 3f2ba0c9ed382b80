// The scoring pass of Scorer and Trainer.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "passes.h"
#include "slimexx/dist/groups.h"
#include "slimexx/train/scorer.h"

namespace slimexx::train {

// Appends to `bytes` the log-probs, then the entropies of samples[indices], one sample after
// another.
void append_scores(const Pass& pass, std::span<const Sample> samples,
                   std::span<const int64_t> indices, std::string& bytes);

// Reads what append_scores wrote at bytes[at] into scores[indices] and moves `at` behind it.
void read_scores(const std::string& bytes, size_t& at, std::span<const Sample> samples,
                 std::span<const int64_t> indices, std::span<TokenScores> scores);

// What the arena of a pass over samples[indices] must hold; most_ep_rows as in ops::Context.
int64_t measure_scoring(const model::Decoder& decoder, const model::ModelParameters& weights,
                        const model::HeadOptions& head, tensor::Device device,
                        const dist::Groups& groups, std::span<const Sample> samples,
                        std::span<const int64_t> indices, int64_t most_ep_rows = 0);

}  // namespace slimexx::train
