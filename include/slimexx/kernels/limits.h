// The largest sizes of a model that the device's kernels serve.
#pragma once
#include <cstdint>

namespace slimexx::kernels {

inline constexpr int64_t kMaxRowWidth = 16384;               // of a norm
inline constexpr int64_t kMaxVocabulary = int64_t{1} << 18;  // that is sampled from

// Mixture of experts: experts, experts of a token, and groups of experts.
inline constexpr int64_t kMostExperts = 384, kMostRoutedTo = 32, kMostExpertGroups = 32;
// The weight gradient may read up to this many rows of x after the last expert's rows. They must be
// finite: they are multiplied by zeros.
inline constexpr int64_t kReadBehindExperts = 64;
// Latent attention: elements of a latent row's values and of its rotary key, and of a head's keys
// and values in the backward pass; all in multiples of 8.
inline constexpr int64_t kMostLatentValues = 512, kMostLatentRotary = 64, kMostWideHeadDim = 256;
// The indexer of sparse attention: its heads, and elements of each, in multiples of 8.
inline constexpr int64_t kMostIndexHeads = 64, kMostIndexHeadDim = 128;

// Ranks that reach each other's memory (peers.h), and what they need of it for themselves.
inline constexpr int64_t kMostPeers = 64, kPeerControlBytes = 8 << 20;

}  // namespace slimexx::kernels
