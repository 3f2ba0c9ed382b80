// Random weights for `slimexx init` and tests.
#include <xxhash.h>

#include <algorithm>
#include <vector>

#include "slimexx/base/normals.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/model/parameters.h"
#include "slimexx/model/spec.h"

namespace slimexx::model {
namespace {

constexpr int64_t kChunkElements = 1 << 20;  // even: a block of the stream makes two normals

struct Piece {
  const ParameterInfo* info;
  int64_t begin, end;
};

void fill_piece(ParameterStore& store, const Piece& piece, double range, uint64_t seed,
                std::vector<float>& values) {
  const ParameterInfo& info = *piece.info;
  values.resize(static_cast<size_t>(piece.end - piece.begin));
  switch (info.init) {
    case InitKind::kNormal:
      fill_normals(seed, XXH3_64bits(info.name.data(), info.name.size()),
                   static_cast<uint64_t>(piece.begin / 2), range, values);
      break;
    case InitKind::kOnes:
      std::fill(values.begin(), values.end(), 1.0f);
      break;
    case InitKind::kZeros:
      std::fill(values.begin(), values.end(), 0.0f);
      break;
  }
  store.write_weights(info, piece.begin, values.data(), piece.end - piece.begin);
}

}  // namespace

void init_random_weights(ParameterStore& store, const ModelSpec& spec, uint64_t seed) {
  std::vector<Piece> pieces;
  for (const auto& info : store.infos()) {
    for (int64_t begin = 0; begin < info.num_elements(); begin += kChunkElements)
      pieces.push_back({&info, begin, std::min(begin + kChunkElements, info.num_elements())});
  }
  parallel_for(std::ssize(pieces), 1, [&](int64_t begin, int64_t end) {
    std::vector<float> values;
    for (int64_t i = begin; i < end; ++i)
      fill_piece(store, pieces[static_cast<size_t>(i)], spec.initializer_range, seed, values);
  });
}

}  // namespace slimexx::model
