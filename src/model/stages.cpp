#include "slimexx/model/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "model/layer_steps.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

constexpr const char* kRanks = "parallel.pipeline_model_parallel_size";
constexpr const char* kFirst = "parallel.decoder_first_pipeline_num_layers";
constexpr const char* kLast = "parallel.decoder_last_pipeline_num_layers";
constexpr const char* kVirtual = "parallel.num_layers_per_virtual_pipeline_stage";

[[noreturn]] void refuse_split(const std::string& what, const std::string& hint, const char* key) {
  throw Error(ErrorCode::kUsage, what, hint, key);
}

int64_t count_ends(const PipelineSplit& split) {
  return (split.first_layers ? 1 : 0) + (split.last_layers ? 1 : 0);
}

// Layers left for the ranks that have no explicit number of layers.
int64_t count_rest(int64_t num_layers, const PipelineSplit& split) {
  return num_layers - split.first_layers.value_or(0) - split.last_layers.value_or(0);
}

// Layers of each rank; nullopt if they cannot be divided this way.
std::optional<std::vector<int64_t>> try_divide_layers(int64_t num_layers,
                                                      const PipelineSplit& split) {
  const int64_t ranks = split.num_ranks, middle = ranks - count_ends(split);
  const int64_t rest = count_rest(num_layers, split);
  if (split.first_layers.value_or(1) < 1 || split.last_layers.value_or(1) < 1) return std::nullopt;
  if (middle < 0 || rest < middle || (middle == 0 ? rest != 0 : rest % middle != 0))
    return std::nullopt;
  std::vector<int64_t> layers(static_cast<size_t>(ranks), middle > 0 ? rest / middle : 0);
  if (split.first_layers) layers.front() = *split.first_layers;
  if (split.last_layers) layers.back() = *split.last_layers;
  return layers;
}

// Stages per rank; nullopt if the number is not whole.
std::optional<int64_t> try_count_chunks(int64_t num_layers, const PipelineSplit& split) {
  if (!split.layers_per_virtual_stage) return 1;
  const int64_t layers = *split.layers_per_virtual_stage;
  if (count_ends(split) > 0 || split.num_ranks == 1 || layers < 1) return std::nullopt;
  if (num_layers % (split.num_ranks * layers) != 0) return std::nullopt;
  return num_layers / split.num_ranks / layers;
}

// Layers of every stage, in stage order.
std::vector<int64_t> list_stage_layers(const std::vector<int64_t>& rank_layers, int64_t chunks) {
  std::vector<int64_t> layers;
  for (int64_t chunk = 0; chunk < chunks; ++chunk)
    for (const int64_t of_rank : rank_layers) layers.push_back(of_rank / chunks);
  return layers;
}

// Layers at which a stage may begin: no layer from there on shares a selection made before it.
std::vector<int64_t> list_legal_starts(const ModelSpec& spec) {
  std::vector<int64_t> starts;
  bool shares_next = false;  // the next layer with sparse attention shares an earlier selection
  for (int64_t layer = spec.num_layers() - 1; layer >= 0; --layer) {
    const KeyChoice choice = key_choice(spec.layer(layer));
    if (choice.selects || choice.shares) shares_next = choice.shares;
    if (!shares_next) starts.push_back(layer);
  }
  std::ranges::reverse(starts);
  return starts;
}

// The largest number of layers on a rank; nullopt if the split is not legal.
std::optional<int64_t> try_most_layers(const std::vector<int64_t>& legal, int64_t num_layers,
                                       const PipelineSplit& split) {
  const auto layers = try_divide_layers(num_layers, split);
  const auto chunks = try_count_chunks(num_layers, split);
  if (!layers || !chunks) return std::nullopt;
  int64_t begin = 0;
  for (const int64_t of_stage : list_stage_layers(*layers, *chunks)) {
    if (!std::ranges::binary_search(legal, begin)) return std::nullopt;
    begin += of_stage;
  }
  return std::ranges::max(*layers);
}

// Every split of the layers over `num_ranks` ranks, legal or not.
std::vector<PipelineSplit> list_splits(int64_t num_layers, int num_ranks) {
  std::vector<PipelineSplit> splits{{.num_ranks = num_ranks}};
  if (num_ranks == 1) return splits;
  for (int64_t n = 1; n <= num_layers; ++n) {
    splits.push_back({.num_ranks = num_ranks, .first_layers = n});
    splits.push_back({.num_ranks = num_ranks, .last_layers = n});
    splits.push_back({.num_ranks = num_ranks, .layers_per_virtual_stage = n});
    for (int64_t last = 1; last <= num_layers - n; ++last)
      splits.push_back({.num_ranks = num_ranks, .first_layers = n, .last_layers = last});
  }
  return splits;
}

struct SplitKey {
  const char* key;
  std::optional<int64_t> PipelineSplit::*layers;
};
constexpr SplitKey kSplitKeys[] = {{kFirst, &PipelineSplit::first_layers},
                                   {kLast, &PipelineSplit::last_layers},
                                   {kVirtual, &PipelineSplit::layers_per_virtual_stage}};

// Describes how to change one split into another: which keys to set and which to leave out.
std::string describe_change(const PipelineSplit& from, const PipelineSplit& to) {
  std::string left_out, set;
  if (to.num_ranks != from.num_ranks) set = fmt::format("set {} to {}", kRanks, to.num_ranks);
  for (const auto& [key, layers] : kSplitKeys) {
    if (to.*layers == from.*layers) continue;
    if (to.*layers)
      set += fmt::format("{} {} to {}", set.empty() ? "set" : " and", key, *(to.*layers));
    else
      left_out += fmt::format("{} {}", left_out.empty() ? "leave out" : " and", key);
  }
  return left_out + (left_out.empty() || set.empty() ? "" : ", and ") + set;
}

// Suggests the most even legal split over the requested number of ranks. Ties go to the split that
// changes the fewest keys, then to the one that removes the fewest. If there is none, suggests a
// split over fewer ranks, whose number divides the requested one.
std::string suggest_split(const std::vector<int64_t>& legal, int64_t num_layers,
                          const PipelineSplit& wanted) {
  struct Choice {
    PipelineSplit split;
    int64_t most_layers = 0, num_keys = 0, num_left_out = 0, distance = 0;
  };
  std::optional<Choice> best;
  const auto order = [](const Choice& c) {
    return std::tuple(c.most_layers, c.num_keys, c.num_left_out, c.distance);
  };
  for (int ranks = wanted.num_ranks; ranks >= 1 && !best; --ranks) {
    if (wanted.num_ranks % ranks != 0 || ranks > num_layers) continue;
    for (const PipelineSplit& split : list_splits(num_layers, ranks)) {
      const auto most = try_most_layers(legal, num_layers, split);
      if (!most) continue;
      Choice choice{.split = split, .most_layers = *most};
      for (const auto& [key, layers] : kSplitKeys) {
        choice.num_keys += split.*layers == wanted.*layers ? 0 : 1;
        choice.num_left_out += wanted.*layers && !(split.*layers) ? 1 : 0;
        if (split.*layers && wanted.*layers)
          choice.distance += std::abs(*(split.*layers) - *(wanted.*layers));
      }
      if (!best || order(choice) < order(*best)) best = choice;
    }
  }
  return describe_change(wanted, best->split);
}

// Throws Error(kUsage) with the equation if the layers cannot be divided this way.
std::vector<int64_t> divide_layers(const std::vector<int64_t>& legal, int64_t num_layers,
                                   const PipelineSplit& split) {
  if (auto layers = try_divide_layers(num_layers, split)) return *std::move(layers);
  const int64_t ends = count_ends(split), middle = split.num_ranks - ends;
  const std::string hint = suggest_split(legal, num_layers, split);
  const char* key = ends == 0 ? kRanks : split.first_layers ? kFirst : kLast;
  if (split.num_ranks == 1)
    refuse_split(
        fmt::format("is {}, but the only pipeline stage has all {} layers",
                    split.first_layers ? *split.first_layers : *split.last_layers, num_layers),
        fmt::format("{}, or raise {}", hint, kRanks), key);
  std::string equation = fmt::format("{} layers", num_layers);
  if (split.first_layers) equation += fmt::format(" - {} of the first stage", *split.first_layers);
  if (split.last_layers) equation += fmt::format(" - {} of the last stage", *split.last_layers);
  if (ends > 0) equation += fmt::format(" = {}", count_rest(num_layers, split));
  refuse_split(fmt::format("{} are not divisible by {} pipeline stage{}", equation, middle,
                           middle == 1 ? "" : "s"),
               hint, key);
}

// Throws Error(kUsage) unless a rank has a whole number of stages.
int64_t count_chunks(const std::vector<int64_t>& legal, int64_t num_layers,
                     const PipelineSplit& split) {
  if (const auto chunks = try_count_chunks(num_layers, split)) return *chunks;
  const std::string hint = suggest_split(legal, num_layers, split);
  if (count_ends(split) > 0)
    refuse_split("interleaved stages must all have the same size", hint, kVirtual);
  if (split.num_ranks == 1)
    refuse_split("interleaved stages need more than one pipeline rank", hint, kVirtual);
  std::vector<int64_t> valid;
  PipelineSplit other = split;
  for (int64_t n = 1; n <= num_layers; ++n) {
    other.layers_per_virtual_stage = n;
    if (try_most_layers(legal, num_layers, other)) valid.push_back(n);
  }
  refuse_split(
      fmt::format("{} layers are not divisible by {} pipeline ranks x {} layers", num_layers,
                  split.num_ranks, *split.layers_per_virtual_stage),
      valid.empty() ? hint : fmt::format("set {} to one of {}", kVirtual, fmt::join(valid, ", ")),
      kVirtual);
}

}  // namespace

std::vector<std::vector<StageRange>> list_stages(const ModelSpec& spec,
                                                 const PipelineSplit& split) {
  const std::vector<int64_t> legal = list_legal_starts(spec);
  const auto ranks = static_cast<size_t>(split.num_ranks);
  const auto chunks = static_cast<size_t>(count_chunks(legal, spec.num_layers(), split));
  const std::vector<int64_t> layers = list_stage_layers(
      divide_layers(legal, spec.num_layers(), split), static_cast<int64_t>(chunks));
  std::vector<std::vector<StageRange>> stages(ranks, std::vector<StageRange>(chunks));
  int64_t begin = 0;
  for (size_t s = 0; s < ranks * chunks; ++s) {
    const int64_t end = begin + layers[s];
    if (!std::ranges::binary_search(legal, begin))
      refuse_split(fmt::format("a pipeline stage would begin at layer {}, which shares the keys of "
                               "an earlier layer; stages may begin at layers {}",
                               begin, fmt::join(legal, ", ")),
                   suggest_split(legal, spec.num_layers(), split), chunks > 1 ? kVirtual : kFirst);
    stages[s % ranks][s / ranks] = {.first_layer = begin,
                                    .end_layer = end,
                                    .has_embedding = s == 0,
                                    .has_head = s + 1 == ranks * chunks};
    begin = end;
  }
  return stages;
}

bool can_split(const ModelSpec& spec, const PipelineSplit& split) {
  return try_most_layers(list_legal_starts(spec), spec.num_layers(), split).has_value();
}

bool holds_embedding_copy(const ModelSpec& spec, const StageRange& stage) {
  return stage.has_head && !stage.has_embedding &&
         (spec.tied_embeddings || spec.num_trained_mtp() > 0);
}

}  // namespace slimexx::model
