// Random weights for `slimexx init` and tests. A shard gets the values that the whole model has
// there.
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

// Elements [begin, end) of the whole parameter, which the store has in `held` from in_held on.
// Random numbers depend on the position in the whole parameter.
struct Piece {
  const ParameterInfo* held;
  int64_t in_held, begin, end;

  int64_t end_in_held() const { return in_held + end - begin; }
};

void append_piece(const Piece& piece, double range, uint64_t seed, std::vector<float>& scratch,
                  std::vector<float>& values) {
  const ParameterInfo& info = *piece.held;
  const size_t size = values.size() + static_cast<size_t>(piece.end - piece.begin);
  switch (info.init) {
    case InitKind::kNormal:
    case InitKind::kEmbedding:
    case InitKind::kResidual: {
      const int64_t first = piece.begin / 2 * 2;  // a block of the stream makes two normals
      scratch.resize(static_cast<size_t>(piece.end - first));
      fill_normals(seed, XXH3_64bits(info.name.data(), info.name.size()),
                   static_cast<uint64_t>(first / 2), range, scratch);
      values.insert(values.end(), scratch.begin() + (piece.begin - first), scratch.end());
      break;
    }
    case InitKind::kOnes:
      values.resize(size, 1.0f);
      break;
    case InitKind::kZeros:
      values.resize(size, 0.0f);
      break;
  }
}

// Residual outputs start small relative to embeddings, unless the embedding is tied to the head.
double spread_range(InitKind init, const ModelSpec& spec) {
  if (init == InitKind::kEmbedding && !spec.tied_embeddings) return 1;
  if (init == InitKind::kResidual)
    return spec.initializer_range / std::sqrt(2.0 * static_cast<double>(spec.layers.size()));
  return spec.initializer_range;
}

// Finds the elements of a shard in the whole parameter, through their positions in the tensors on
// disk.
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
    if (!info.has_plain) continue;
    const ParameterInfo& whole = *wholes.at(info.name);
    if (info.shape != whole.shape) {
      add_pieces_of_shard(info, whole, pieces);
      continue;
    }
    for (int64_t begin = 0; begin < info.num_elements(); begin += kChunkElements)
      pieces.push_back(
          {&info, begin, begin, std::min(begin + kChunkElements, info.num_elements())});
  }
  // Write consecutive pieces together: each write waits for the device, and a piece of a shard may
  // be one row.
  std::vector<size_t> starts;
  for (size_t i = 0, size = 0; i < pieces.size(); ++i) {
    const auto n = static_cast<size_t>(pieces[i].end - pieces[i].begin);
    const bool follows = i > 0 && pieces[i - 1].held == pieces[i].held &&
                         pieces[i - 1].end_in_held() == pieces[i].in_held;
    if (!follows || size + n > kChunkElements) starts.push_back(i), size = 0;
    size += n;
  }
  starts.push_back(pieces.size());
  parallel_for(std::ssize(starts) - 1, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch, values;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      const Piece& first = pieces[starts[i]];
      const double range =
          spread_tokens ? spread_range(first.held->init, spec) : spec.initializer_range;
      values.clear();
      for (size_t j = starts[i]; j < starts[i + 1]; ++j)
        append_piece(pieces[j], range, seed, scratch, values);
      store.write_weights(*first.held, first.in_held, values.data(), std::ssize(values));
    }
  });
}

}  // namespace slimexx::model
