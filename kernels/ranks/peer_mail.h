// Sums and gathers of few words, which every rank sends with the call's number among them: who has
// read the number has read the words, so that a call takes one way over NVLink. No rank writes or
// reads another one's arrays.
#pragma once
#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

// Ranges are of words of two bytes, and may have elements in common. The same on all ranks.
bool goes_by_mail(const PeerRegions& p, const PeerRanges& ranges);
// result = the sum in rank order, bf16, of this rank's range of all ranks' `words`.
const char* sum_by_mail(const PeerRegions& p, const PeerRanges& ranges, const void* words,
                        void* result, cudaStream_t stream);
// words[ranges of rank r] = the share of rank r.
const char* gather_by_mail(const PeerRegions& p, const PeerRanges& ranges, void* words,
                           const void* share, cudaStream_t stream);

}  // namespace slimexx::kernels::peers
