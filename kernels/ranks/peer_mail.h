// Sums of few bf16 terms, which every rank sends to all others with the call's number in each word:
// who has read the number has read the terms, so that a sum takes one way over NVLink.
#pragma once
#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

// The same on all ranks.
bool goes_by_mail(const PeerRegions& p, RankTerm type, int64_t n);
// result [n] bf16 = the sum in rank order of all ranks' terms [n], which are even addresses.
const char* sum_by_mail(const PeerRegions& p, const void* terms, void* result, int64_t n,
                        cudaStream_t stream);

}  // namespace slimexx::kernels::peers
