// The keys of a launch of latent attention, and the functions that launch its kernels.
#pragma once
#include <cuda.h>

#include "kernels/latent_attention/problem.cuh"
#include "slimexx/kernels/float8.h"

namespace slimexx::kernels::latent_attention {

// Sparse attention: the keys that each query sees.
struct KeyLists {
  const int32_t* selected;  // [tokens, width], positions in the query's sequence, ascending
  int width;
  int rotary_dim;
  const uint16_t* keys;  // paged: rows of all pages; packed: rows of the batch
  int64_t key_stride;
};

inline constexpr int kF8Group = static_cast<int>(tensor::kF8LatentGroup);

// bf16 keys: boxes of problem.attention.box_rows rows.
struct KeyBoxes {
  CUtensorMap map, rotary_map;
};

// FP8 keys, paged (tensor::F8LatentRow).
struct F8Keys {
  const uint8_t* rows;
  uint32_t stride;  // bytes
  int value_dim, rotary_dim, scales_at, rotary_at;
  const int32_t* selected;  // as in KeyLists
  int list_width;
};

struct Launch {
  Problem problem;
  KeyLists lists;
  CUtensorMap query_map, query_rotary_map;  // boxes of query_rows rows
  KeyBoxes keys;                            // without has_f8_keys
  F8Keys f8_keys;                           // with has_f8_keys
  int64_t tokens;
  int max_segments;
  int query_rows;  // query rows per tile
  bool has_f8_keys;
};

// Calls `launch` with the keys of the launch, a KeyBoxes or an F8Keys: a parameter of the kernel.
template <class LaunchKeys>
cudaError_t with_keys(const Launch& parameters, const LaunchKeys& launch) {
  return parameters.has_f8_keys ? launch(parameters.f8_keys) : launch(parameters.keys);
}

// Any number of rows per sequence; a thread block walks all keys of a tile.
cudaError_t launch_whole(const Launch& launch, cudaStream_t stream);
// Any number of rows; a thread block walks one segment of keys. Also launches the merge if needed.
cudaError_t launch_split(const Launch& launch, cudaStream_t stream);
// Like launch_split, for at most kMostFewRows rows per sequence.
cudaError_t launch_few_rows(const Launch& launch, cudaStream_t stream);
// Like launch_few_rows, for few segments: a cluster of thread blocks walks one segment.
inline constexpr int kMostClusters = 16;  // clusters that the GPU runs at a time
cudaError_t launch_cluster_rows(const Launch& launch, cudaStream_t stream);
// Sparse attention: queries have lists of their keys. Any number of rows per sequence.
cudaError_t launch_listed(const Launch& launch, cudaStream_t stream);
cudaError_t launch_merge(const Launch& launch, cudaStream_t stream);

}  // namespace slimexx::kernels::latent_attention
