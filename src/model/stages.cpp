#include "slimexx/model/stages.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "model/layer_steps.h"
#include "slimexx/base/error.h"

namespace slimexx::model {
namespace {

constexpr const char* kFirst = "parallel.decoder_first_pipeline_num_layers";
constexpr const char* kLast = "parallel.decoder_last_pipeline_num_layers";
constexpr const char* kVirtual = "parallel.num_layers_per_virtual_pipeline_stage";

[[noreturn]] void refuse_split(const std::string& what, const std::string& hint, const char* key) {
  throw Error(ErrorCode::kUsage, what, hint, key);
}

// The layers of the first and the last rank, of as even a split as whole layers allow.
std::string suggest_ends(int64_t num_layers, int64_t ranks) {
  const int64_t share = num_layers / ranks;
  if (share == 0) return fmt::format("use at most {} stages", num_layers);
  if (ranks == 2) return fmt::format("set {} to {}", kFirst, share);
  // Middle ranks take one layer more, if that leaves the ends a layer each.
  const int64_t more = num_layers - (ranks - 2) * (share + 1);
  const int64_t ends = more >= 2 ? more : num_layers - (ranks - 2) * share;
  return fmt::format("set {} to {} and {} to {}", kFirst, ends / 2, kLast, ends - ends / 2);
}

// Layers of each rank.
std::vector<int64_t> divide_layers(int64_t num_layers, const PipelineSplit& split) {
  const int64_t ranks = split.num_ranks;
  const int64_t first = split.first_layers.value_or(0), last = split.last_layers.value_or(0);
  const int64_t ends = (split.first_layers ? 1 : 0) + (split.last_layers ? 1 : 0);
  const int64_t middle = ranks - ends, rest = num_layers - first - last;
  const bool has_room = (!split.first_layers || first > 0) && (!split.last_layers || last > 0) &&
                        middle >= 0 && rest >= middle;
  if (!has_room || (middle == 0 ? rest != 0 : rest % middle != 0)) {
    std::string equation = fmt::format("{} layers", num_layers);
    if (split.first_layers) equation += fmt::format(" - {} of the first", first);
    if (split.last_layers) equation += fmt::format(" - {} of the last", last);
    if (ends > 0) equation += fmt::format(" = {}", rest);
    refuse_split(
        fmt::format("{} do not divide by {} pipeline stage{}", equation, middle,
                    middle == 1 ? "" : "s"),
        suggest_ends(num_layers, ranks),
        ends > 0 ? (split.first_layers ? kFirst : kLast) : "parallel.pipeline_model_parallel_size");
  }
  std::vector<int64_t> layers(static_cast<size_t>(ranks), middle > 0 ? rest / middle : 0);
  if (split.first_layers) layers.front() = first;
  if (split.last_layers) layers.back() = last;
  return layers;
}

int64_t count_chunks(int64_t num_layers, const PipelineSplit& split) {
  if (!split.layers_per_virtual_stage) return 1;
  const int64_t layers = *split.layers_per_virtual_stage;
  if (split.first_layers || split.last_layers)
    refuse_split("interleaved stages are all of one size",
                 fmt::format("leave out {} and {}, or {}", kFirst, kLast, kVirtual), kVirtual);
  if (split.num_ranks == 1)
    refuse_split("interleaved stages need more than one pipeline rank",
                 fmt::format("leave out {}", kVirtual), kVirtual);
  if (num_layers % split.num_ranks == 0 && layers > 0 && num_layers / split.num_ranks % layers == 0)
    return num_layers / split.num_ranks / layers;
  std::vector<int64_t> valid;
  for (int64_t n = 1; num_layers % split.num_ranks == 0 && n <= num_layers / split.num_ranks; ++n)
    if (num_layers / split.num_ranks % n == 0) valid.push_back(n);
  refuse_split(fmt::format("{} layers do not divide by {} pipeline ranks x {} layers", num_layers,
                           split.num_ranks, layers),
               valid.empty() ? fmt::format("leave out {}", kVirtual)
                             : fmt::format("set {} to one of {}", kVirtual, fmt::join(valid, ", ")),
               kVirtual);
}

// Layers at which a stage may begin: none behind it shares a selection from before.
std::vector<int64_t> list_legal_starts(const ModelSpec& spec) {
  std::vector<int64_t> starts;
  bool shares_next = false;  // of the layers from here on the first with a choice shares one
  for (int64_t layer = spec.num_layers() - 1; layer >= 0; --layer) {
    const KeyChoice choice = key_choice(spec.layer(layer));
    if (choice.selects || choice.shares) shares_next = choice.shares;
    if (!shares_next) starts.push_back(layer);
  }
  std::ranges::reverse(starts);
  return starts;
}

// Numbers of layers of the first and the last rank that let every stage begin at a legal layer, the
// most even ones first.
std::string suggest_legal_ends(const std::vector<int64_t>& legal, int64_t num_layers,
                               int64_t ranks) {
  struct Ends {
    int64_t first = 0, last = 0, unevenness = 0;
  };
  std::vector<Ends> splits;
  for (int64_t first = 1; first < num_layers; ++first) {
    for (int64_t last = 1; last <= num_layers - first; ++last) {
      const int64_t middle = ranks - 2, rest = num_layers - first - last;
      if (middle == 0 ? rest != 0 : rest < middle || rest % middle != 0) continue;
      bool is_legal = true;
      for (int64_t s = 0; s <= middle; ++s)
        is_legal = is_legal && std::ranges::binary_search(
                                   legal, first + (middle > 0 ? s * (rest / middle) : 0));
      if (is_legal)
        splits.push_back(
            {first, last,
             std::abs(first * ranks - num_layers) + std::abs(last * ranks - num_layers)});
    }
  }
  if (splits.empty()) return fmt::format("no split over {} ranks does: use fewer", ranks);
  std::ranges::stable_sort(splits, {}, &Ends::unevenness);
  constexpr size_t kMostShown = 6;
  std::vector<std::string> shown;
  for (size_t i = 0; i < std::min(splits.size(), kMostShown); ++i)
    shown.push_back(fmt::format("{} and {}", splits[i].first, splits[i].last));
  return fmt::format("set {} and {} to {}", kFirst, kLast, fmt::join(shown, ", or "));
}

}  // namespace

std::vector<std::vector<StageRange>> list_stages(const ModelSpec& spec,
                                                 const PipelineSplit& split) {
  const auto ranks = static_cast<size_t>(split.num_ranks);
  const auto chunks = static_cast<size_t>(count_chunks(spec.num_layers(), split));
  const std::vector<int64_t> layers = divide_layers(spec.num_layers(), split);
  const std::vector<int64_t> legal = list_legal_starts(spec);
  std::vector<std::vector<StageRange>> stages(ranks, std::vector<StageRange>(chunks));
  int64_t begin = 0;
  for (size_t s = 0; s < ranks * chunks; ++s) {
    const int64_t end = begin + layers[s % ranks] / static_cast<int64_t>(chunks);
    if (!std::ranges::binary_search(legal, begin))
      refuse_split(
          fmt::format("a pipeline stage would begin at layer {}, which shares the keys that an "
                      "earlier layer selects; stages may begin at layers {}",
                      begin, fmt::join(legal, ", ")),
          suggest_legal_ends(legal, spec.num_layers(), split.num_ranks),
          chunks > 1 ? kVirtual : kFirst);
    stages[s % ranks][s / ranks] = {.first_layer = begin,
                                    .end_layer = end,
                                    .has_embedding = s == 0,
                                    .has_head = s + 1 == ranks * chunks};
    begin = end;
  }
  return stages;
}

bool holds_embedding_copy(const ModelSpec& spec, const StageRange& stage) {
  return stage.has_head && !stage.has_embedding &&
         (spec.tied_embeddings || spec.num_trained_mtp() > 0);
}

}  // namespace slimexx::model
