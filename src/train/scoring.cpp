#include "scoring.h"

#include <cstring>
#include <numeric>

namespace slimexx::train {

using tensor::Arena;

void append_scores(const Pass& pass, std::span<const Sample> samples,
                   std::span<const int64_t> indices, std::string& bytes) {
  tensor::ArenaScope scope(pass.ctx.arena);
  InFlight f;
  run_forward(pass, samples, indices, f, false);
  for (const tensor::Tensor& t : {f.log_probs, f.entropies}) {
    const size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(t.size_bytes()));
    tensor::download(pass.ctx.stream, bytes.data() + at, t);
  }
}

void read_scores(const std::string& bytes, size_t& at, std::span<const Sample> samples,
                 std::span<const int64_t> indices, std::span<TokenScores> scores) {
  for (auto field : {&TokenScores::log_probs, &TokenScores::entropies}) {
    for (const int64_t i : indices) {
      auto& values = scores[static_cast<size_t>(i)].*field;
      values.resize(static_cast<size_t>(samples[static_cast<size_t>(i)].response_length));
      std::memcpy(values.data(), bytes.data() + at, values.size() * sizeof(float));
      at += values.size() * sizeof(float);
    }
  }
}

int64_t measure_scoring(const model::Decoder& decoder, const model::ModelParameters& weights,
                        const model::HeadOptions& head, tensor::Device device,
                        const dist::Groups& groups, std::span<const Sample> samples,
                        std::span<const int64_t> indices, int64_t most_ep_rows) {
  Arena plan = Arena::for_planning(device, "");
  InFlight f;
  run_forward({decoder, weights, head, ops::planning_context(plan, groups, most_ep_rows)}, samples,
              indices, f, false);
  return plan.high_water_bytes();
}

Scorer::Scorer(const model::Decoder& decoder, const model::ParameterStore& store, float temperature,
               tensor::Device device)
    : decoder_(decoder),
      weights_(model::bind_weights(store, decoder.spec())),
      head_options_{.temperature = temperature},
      device_(device),
      arena_(device, 0, "activations of one forward") {}

std::vector<TokenScores> Scorer::score(std::span<const Sample> samples) {
  std::vector<int64_t> all(samples.size());
  std::iota(all.begin(), all.end(), 0);
  arena_.reserve(measure_scoring(decoder_, weights_, head_options_, device_, dist::groups_of_one(),
                                 samples, all));
  std::string bytes;
  append_scores({decoder_, weights_, head_options_, ops::compute_context(arena_)}, samples, all,
                bytes);
  std::vector<TokenScores> scores(samples.size());
  size_t at = 0;
  read_scores(bytes, at, samples, all, scores);
  return scores;
}

}  // namespace slimexx::train
