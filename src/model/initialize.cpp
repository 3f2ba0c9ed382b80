// Random weights for `slimexx init` and tests: a shard has those of the whole model.
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "slimexx/base/normals.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {
namespace {

constexpr int64_t kChunkElements = 1 << 20;

// Elements of the store's parameter `held` that are [begin, end) of the whole one, whose stream of
// random numbers they have.
struct Piece {
  const ParameterInfo* held;
  int64_t in_held, begin, end;
};

void fill_piece(ParameterStore& store, const Piece& piece, double range, uint64_t seed,
                std::vector<float>& values) {
  const ParameterInfo& info = *piece.held;
  const int64_t first = piece.begin / 2 * 2;  // a block of the stream makes two normals
  values.resize(static_cast<size_t>(piece.end - first));
  switch (info.init) {
    case InitKind::kNormal:
    case InitKind::kEmbedding:
    case InitKind::kResidual:
      fill_normals(seed, XXH3_64bits(info.name.data(), info.name.size()),
                   static_cast<uint64_t>(first / 2), range, values);
      break;
    case InitKind::kOnes:
      std::fill(values.begin(), values.end(), 1.0f);
      break;
    case InitKind::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      break;
  }
  store.write_weights(info, piece.in_held, values.data() + (piece.begin - first),
                      piece.end - piece.begin);
}

// What layers add is small beside a token's embedding, unless that is the head too.
double spread_range(InitKind init, const ModelSpec& spec) {
  if (init == InitKind::kEmbedding && !spec.tied_embeddings) return 1;
  if (init == InitKind::kResidual)
    return spec.initializer_range / std::sqrt(2.0 * static_cast<double>(spec.layers.size()));
  return spec.initializer_range;
}

// Tensors on disk are what a shard and the whole parameter have in common.
void add_pieces_of_shard(const ParameterInfo& held, const ParameterInfo& whole,
                         std::vector<Piece>& pieces) {
  std::map<std::string_view, std::vector<ElementRun>> whole_runs;
  for (const ElementRun& run : list_runs(whole))
    whole_runs[whole.parts[run.part].name].push_back(run);
  for (auto& [name, runs] : whole_runs) std::ranges::sort(runs, {}, &ElementRun::on_disk);
  for (const ElementRun& own : list_runs(held)) {
    const std::vector<ElementRun>& runs = whole_runs.at(held.parts[own.part].name);
    const int64_t end = own.on_disk + own.size;
    auto run = std::ranges::upper_bound(runs, own.on_disk, {}, &ElementRun::on_disk) - 1;
    for (int64_t at = own.on_disk; at < end; ++run) {
      const int64_t stop = std::min(end, run->on_disk + run->size);
      const int64_t begin = run->in_parameter + at - run->on_disk;
      pieces.push_back({&held, own.in_parameter + at - own.on_disk, begin, begin + stop - at});
      at = stop;
    }
  }
}

}  // namespace

void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed,
                         bool spread_tokens) {
  std::vector<ParameterInfo> infos = list_parameters(spec);
  std::unordered_map<std::string_view, const ParameterInfo*> wholes;
  for (ParameterInfo& info : infos) {
    complete_parts(info);
    wholes[info.name] = &info;
  }
  std::vector<Piece> pieces;
  for (const auto& info : store.infos()) {
    const ParameterInfo& whole = *wholes.at(info.name);
    if (info.shape != whole.shape) {
      add_pieces_of_shard(info, whole, pieces);
      continue;
    }
    for (int64_t begin = 0; begin < info.num_elements(); begin += kChunkElements)
      pieces.push_back(
          {&info, begin, begin, std::min(begin + kChunkElements, info.num_elements())});
  }
  parallel_for(std::ssize(pieces), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values;
    for (int64_t i = begin; i < end; ++i) {
      const Piece& piece = pieces[static_cast<size_t>(i)];
      const double range =
          spread_tokens ? spread_range(piece.held->init, spec) : spec.initializer_range;
      fill_piece(store, piece, range, seed, values);
    }
  });
}

}  // namespace slimexx::model
