// One token a row. A first pass over the logits leaves the partial results of the tiles (as for the
// log-normaliser: 4.75 KB a row of 151936); then one block a row finishes:
//   untruncated  the uniform number picks a tile by the tiles' masses, then a token in that tile
//   truncated    a lower bound of what can be kept skips most tiles; the tokens above it, in shared
//                memory if they fit there, are selected by histograms (select.cuh)
//   greedy       the first tile whose maximum is the row's, the first token of it
#include <cuda_runtime.h>

#include "kernels/vocabulary/row_sources.cuh"
#include "kernels/vocabulary/select.cuh"

namespace slimexx::kernels::vocabulary {
namespace {

constexpr size_t kCandidateBytes = size_t{kMaxCandidates} * sizeof(uint64_t);

struct BlockMemory {
  Histogram histogram;
  SamplingParameters parameters;
  TileSum row;     // all columns
  TileSum edge;    // the allowed part of the tile that the allowed columns end in
  float maximum;   // of the allowed columns
  int first_best;  // tile or token
  int tile_count, candidate_count;
  uint16_t tiles[kMaxTiles];
};

class RowSampler {
 public:
  __device__ RowSampler(BlockMemory& memory, uint64_t* candidates, const TilePartials& partials,
                        const LogitRows& rows, int64_t row, int allowed)
      : memory_(memory),
        candidates_(candidates),
        maxima_(partials.maximum + row * partials.tiles),
        sums_(partials.sum + row * partials.tiles),
        logits_(rows.logits + row * rows.stride),
        all_tiles_(static_cast<int>(partials.tiles)),
        columns_(allowed),
        tiles_(static_cast<int>(count_tiles(allowed))),
        edge_tile_(allowed < rows.columns && allowed % kTileColumns != 0 ? tiles_ - 1 : -1) {}

  // The row's log-normaliser (in every thread) and the largest allowed z; NaN: not a distribution.
  __device__ float begin() {
    const int warp = static_cast<int>(threadIdx.x / 32);
    if (warp == 0) {
      const TileSum row = merge_tiles<false>(maxima_, sums_, nullptr, all_tiles_);
      if (threadIdx.x == 0) memory_.row = row;
    } else if (warp == 1 && edge_tile_ >= 0) {
      sum_edge();
    }
    __syncthreads();
    if (warp == 0) {
      float m = -kInfinity;
      for (int t = static_cast<int>(threadIdx.x); t < tiles_; t += 32) m = fmaxf(m, maximum_of(t));
      for (int distance = 16; distance > 0; distance /= 2) {
        m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, distance));
      }
      if (threadIdx.x == 0) memory_.maximum = m;
    }
    __syncthreads();
    maximum_ = memory_.maximum;
    const float lse = row_lse(memory_.row);
    return maximum_ > -kInfinity && fabsf(lse) < kInfinity ? lse : __int_as_float(0x7fffffff);
  }

  __device__ float z_of(int column) const {
    return divide_logit(logits_[column], memory_.parameters.temperature);
  }

  __device__ int pick_largest() {
    const int tile = first_where(tiles_, [&](int t) { return maximum_of(t) == maximum_; });
    const int first = tile * kTileColumns;
    return first + first_where(min(kTileColumns, columns_ - first),
                               [&](int c) { return z_of(first + c) == maximum_; });
  }

  __device__ bool is_truncated() const {
    const SamplingParameters& p = memory_.parameters;
    return has_top_k() || p.top_p < 1.0f || p.min_p > 0.0f;
  }

  // Conditional choice: first the tile, then in it, each by its own exact masses.
  __device__ int pick_from_all(KeptSet& kept) {
    const Found tile = find_tile([&](const Tally& total) {
      kept.total = kept.mass = total.mass;
      return scale_uniform(uniform_bits(memory_.parameters), total.mass) + 1;
    });
    // `into` lies in [0, mass of the tile); the tokens' masses relative to the tile's maximum are
    // less than 2^53, so that double holds them.
    const uint64_t into =
        scale_uniform(uniform_bits(memory_.parameters), kept.mass) - tile.before.mass;
    const double share = static_cast<double>(into) / static_cast<double>(tile.in_bin.mass);
    const int first = tile.bin * kTileColumns, c = static_cast<int>(threadIdx.x);
    const float tile_maximum = maximum_of(tile.bin);
    memory_.histogram.clear();
    __syncthreads();
    if (c < kTileColumns && first + c < columns_) {
      memory_.histogram.set(c, mass_of(weight_of(z_of(first + c), tile_maximum)));
    }
    const Found token = find_bin<true>(memory_.histogram, [&](const Tally& total) {
      const auto goal = static_cast<uint64_t>(share * static_cast<double>(total.mass));
      return min(goal, total.mass - 1) + 1;
    });
    return first + token.bin;
  }

  __device__ int pick_truncated(KeptSet& kept) {
    find_tile([&](const Tally& total) {
      kept.total = total.mass;
      return uint64_t{1};
    });
    kept.min_weight = fminf(fmaxf(memory_.parameters.min_p, 0.0f), 1.0f);
    const uint32_t lowest = lowest_key(kept);
    list_tiles(lowest);
    const TiledRow row = {logits_,       memory_.parameters.temperature,
                          columns_,      lowest,
                          memory_.tiles, memory_.tile_count};
    if (threadIdx.x == 0) memory_.candidate_count = 0;
    __syncthreads();
    row.for_each([&](uint32_t key, uint32_t id) {
      const int at = atomicAdd(&memory_.candidate_count, 1);
      if (at < kMaxCandidates) candidates_[at] = uint64_t{key} << 32 | id;
    });
    __syncthreads();
    const int count = memory_.candidate_count;
    if (count <= kMaxCandidates) return pick_kept(CandidateList{candidates_, count}, kept);
    return pick_kept(row, kept);
  }

 private:
  __device__ bool has_top_k() const {
    return memory_.parameters.top_k > 0 && memory_.parameters.top_k < columns_;
  }
  __device__ float maximum_of(int tile) const {
    return tile == edge_tile_ ? memory_.edge.maximum : maxima_[tile];
  }
  __device__ float sum_of(int tile) const {
    return tile == edge_tile_ ? memory_.edge.sum : sums_[tile];
  }

  __device__ void sum_edge() {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int first = edge_tile_ * kTileColumns;
    float z[kLaneValues];
#pragma unroll
    for (int k = 0; k < kLaneValues; ++k) {
      const int column = first + tile_column(lane % kLanesPerTile, k);
      z[k] = column < columns_ ? z_of(column) : -kInfinity;
    }
    const TileSum tile = sum_tile<false>([&z](int k) { return z[k]; });
    if (lane == 0) memory_.edge = tile;
  }

  // The first index below `count` that holds; the block calls. There is one.
  template <class Predicate>
  __device__ int first_where(int count, Predicate predicate) {
    if (threadIdx.x == 0) memory_.first_best = count;
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kSamplingThreads) {
      if (!predicate(i)) continue;
      atomicMin(&memory_.first_best, i);
      break;
    }
    __syncthreads();
    const int first = memory_.first_best;
    __syncthreads();
    return first;
  }

  template <class Goal>
  __device__ Found find_tile(Goal goal) {
    memory_.histogram.clear();
    __syncthreads();
    for (int t = static_cast<int>(threadIdx.x); t < tiles_; t += kSamplingThreads) {
      const float weight = weight_of(maximum_of(t), maximum_);
      memory_.histogram.set(t, mass_of(__fmul_rn(sum_of(t), weight)));
    }
    return find_bin<true>(memory_.histogram, goal);
  }

  // A key that no kept token is below. With top_k: at least k tiles reach the k-th largest of their
  // maxima. With top_p alone: the n tokens not heavier than the last kept one, itself included,
  // hold more than 1 - top_p of the mass. The factors leave room for the rounding of exp, log and
  // the tiles' sums; where 1 - top_p drowns in that, nothing is skipped.
  __device__ uint32_t lowest_key(const KeptSet& kept) {
    const SamplingParameters& p = memory_.parameters;
    if (has_top_k()) {
      if (p.top_k > tiles_) return 0;
      return bound_of_largest(static_cast<uint64_t>(p.top_k));
    }
    float weight = 0.9f * kept.min_weight;
    if (p.top_p < 1.0f) {
      const double rest = 1.0 - static_cast<double>(p.top_p);
      if (rest < 1e-5) return 0;
      const double total = static_cast<double>(kept.total) / static_cast<double>(kMassUnit);
      // min_p comes after top_p, so it bounds nothing here.
      weight = static_cast<float>(fmin(0.5, 0.5 * rest * total / columns_));
    }
    if (weight < 0x1p-120f) return 0;
    return key_of(__fadd_rn(maximum_, fixed_log(weight)) - 1e-6f * fabsf(maximum_));
  }

  // At most the k-th largest maximum of the tiles, by one histogram over z down to `maximum - 40`.
  __device__ uint32_t bound_of_largest(uint64_t k) {
    const uint32_t highest = key_of(maximum_);
    const uint32_t range = highest - key_of(__fadd_rn(maximum_, -40.0f));
    const int shift = max(0, 32 - __clz(static_cast<int>(range)) - kBinBits);
    memory_.histogram.clear();
    __syncthreads();
    for (int t = static_cast<int>(threadIdx.x); t < tiles_; t += kSamplingThreads) {
      const uint32_t bin = (highest - key_of(maximum_of(t))) >> shift;
      if (bin < kBins) atomicAdd(&memory_.histogram.count[bin], 1u);
    }
    const Found found = find_bin<false>(memory_.histogram, [&](const Tally&) { return k; });
    if (found.bin < 0) return 0;
    const uint32_t below = ((static_cast<uint32_t>(found.bin) + 1) << shift) - 1;
    return below < highest ? highest - below : 0;
  }

  __device__ void list_tiles(uint32_t lowest) {
    if (threadIdx.x == 0) memory_.tile_count = 0;
    __syncthreads();
    for (int t = static_cast<int>(threadIdx.x); t < tiles_; t += kSamplingThreads) {
      if (key_of(maximum_of(t)) < lowest) continue;
      memory_.tiles[atomicAdd(&memory_.tile_count, 1)] = static_cast<uint16_t>(t);
    }
    __syncthreads();
  }

  // Selects among all that `source` holds, then walks the kept ones by id.
  template <class Source>
  __device__ int pick_kept(const Source& source, KeptSet& kept) {
    uint64_t mass = kept.total;
    if (has_top_k()) {
      mass = keep_first<false>(source, kept, static_cast<uint64_t>(memory_.parameters.top_k));
    }
    if (memory_.parameters.top_p < 1.0f) {
      const double goal =
          ceil(static_cast<double>(memory_.parameters.top_p) * static_cast<double>(mass));
      keep_first<true>(source, kept, goal < 1.0 ? 1 : static_cast<uint64_t>(goal));
    }
    const auto by_id = [&](uint32_t key, uint32_t id, uint32_t& rank) {
      rank = id;
      return (key > kept.key || (key == kept.key && id <= kept.last_id)) &&
             weight_of(value_of(key), maximum_) >= kept.min_weight;
    };
    const Selection token =
        select_rank<true>(memory_.histogram, source, static_cast<uint32_t>(columns_ - 1), maximum_,
                          by_id, [&](const Tally& total) {
                            kept.mass = total.mass;
                            return scale_uniform(uniform_bits(memory_.parameters), total.mass) + 1;
                          });
    return static_cast<int>(token.rank);
  }

  // Keeps the fewest of the best tokens whose count or mass reaches `goal`: all if none does.
  // Returns their mass.
  template <bool kByMass, class Source>
  __device__ uint64_t keep_first(const Source& source, KeptSet& kept, uint64_t goal) {
    const uint32_t highest = key_of(maximum_);
    const auto by_key = [&](uint32_t key, uint32_t, uint32_t& rank) {
      rank = highest - key;
      return true;
    };
    const Selection last = select_rank<kByMass>(memory_.histogram, source, highest, maximum_,
                                                by_key, [&](const Tally&) { return goal; });
    if (!last.reached) return kept.total;
    kept.key = highest - last.rank;
    kept.last_id = 0xffffffffu;
    const uint64_t one = mass_of(weight_of(value_of(kept.key), maximum_));
    const uint64_t equals =
        kByMass ? (goal - last.before.mass + one - 1) / one : goal - last.before.count;
    if (equals < last.equal.count) {
      const auto equal_by_id = [&](uint32_t key, uint32_t id, uint32_t& rank) {
        rank = id;
        return key == kept.key;
      };
      kept.last_id =
          select_rank<false>(memory_.histogram, source, static_cast<uint32_t>(columns_ - 1),
                             maximum_, equal_by_id, [&](const Tally&) { return equals; })
              .rank;
    }
    return last.before.mass + equals * one;
  }

  BlockMemory& memory_;
  uint64_t* candidates_;
  const float *maxima_, *sums_, *logits_;
  int all_tiles_, columns_, tiles_, edge_tile_;
  float maximum_ = 0.0f;
};

__global__ void __launch_bounds__(kSamplingThreads, 2)
    sample_rows(int32_t* tokens, float* log_probs, KeptSet* kept_sets, TilePartials partials,
                LogitRows rows, const SamplingParameters* parameters, int allowed) {
  extern __shared__ uint64_t candidates[];
  __shared__ BlockMemory memory;
  const int64_t row = blockIdx.x;
  if (threadIdx.x == 0) memory.parameters = parameters[row];
  __syncthreads();
  RowSampler sampler(memory, candidates, partials, rows, row, allowed);
  const float lse = sampler.begin();
  KeptSet kept;
  kept.maximum = memory.maximum;
  int token = -1;
  if (lse == lse) {
    token = memory.parameters.greedy ? sampler.pick_largest()
            : sampler.is_truncated() ? sampler.pick_truncated(kept)
                                     : sampler.pick_from_all(kept);
  }
  if (threadIdx.x != 0) return;
  tokens[row] = token;
  log_probs[row] = token < 0 ? lse : __fadd_rn(sampler.z_of(token), -lse);
  kept_sets[row] = kept;
}

}  // namespace
}  // namespace slimexx::kernels::vocabulary

namespace slimexx::kernels {

using namespace vocabulary;

size_t sample_tokens_workspace(int64_t rows, int64_t columns) {
  return (partials_bytes(rows, columns, false) + 15) / 16 * 16 +
         static_cast<size_t>(rows) * sizeof(KeptSet);
}

cudaError_t sample_tokens(int32_t* tokens, float* log_probs, const LogitRows& logits,
                          const SamplingParameters* parameters, int64_t allowed_tokens,
                          void* workspace, cudaStream_t stream) {
  if (logits.rows == 0) return cudaSuccess;
  if (logits.columns < 1 || logits.columns > kMaxSampledColumns) return cudaErrorInvalidValue;
  const int64_t allowed =
      allowed_tokens > 0 && allowed_tokens < logits.columns ? allowed_tokens : logits.columns;
  const TilePartials partials = place_partials(workspace, logits.rows, logits.columns, false);
  const RowTemperatures temperatures = {&parameters->temperature,
                                        sizeof(SamplingParameters) / sizeof(float)};
  if (const cudaError_t error = launch_tile_pass(partials, logits, temperatures, false, stream)) {
    return error;
  }
  if (const cudaError_t error =
          cudaFuncSetAttribute(sample_rows, cudaFuncAttributeMaxDynamicSharedMemorySize,
                               static_cast<int>(kCandidateBytes))) {
    return error;
  }
  sample_rows<<<static_cast<unsigned>(logits.rows), kSamplingThreads, kCandidateBytes, stream>>>(
      tokens, log_probs, place_kept_sets(workspace, logits.rows, logits.columns), partials, logits,
      parameters, static_cast<int>(allowed));
  return cudaGetLastError();
}

}  // namespace slimexx::kernels
