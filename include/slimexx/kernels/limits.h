// The largest model sizes that the CUDA kernels support.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

inline constexpr int64_t kMaxRowWidth = 16384;               // width of a norm
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 18;  // for sampling

// Mixture of experts: experts, experts per token (top_k), and groups of experts.
inline constexpr int64_t kMostExperts = 384, kMostRoutedTo = 32, kMostExpertGroups = 32;
// The weight gradient may read up to this many rows of x after the last expert's rows. These rows
// must be finite, because they are multiplied by zeros.
inline constexpr int64_t kReadBehindExperts = 64;
// Latent attention: elements of a latent row's values and of its rotary key; elements of a head's
// keys and of its values in the backward. All are multiples of 8.
inline constexpr int64_t kMostLatentValues = 512, kMostLatentRotary = 64, kMostWideHeadDim = 256;
// The indexer of sparse attention: its heads, and elements per head, a multiple of 8.
inline constexpr int64_t kMostIndexHeads = 64, kMostIndexHeadDim = 128;

// Ranks that access each other's memory (peers.h), and bytes of control memory per rank.
inline constexpr int64_t kMostPeers = 64, kPeerControlBytes = 8 << 20;

}  // namespace slimexx::kernels
