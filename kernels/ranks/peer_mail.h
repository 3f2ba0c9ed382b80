// Sums and gathers of few words by a low-latency protocol: every rank sends its words together with
// the number of the call, so a receiver that finds the number has the words. A call takes one
// NVLink latency. Ranks do not access one another's arrays.
#pragma once
#include "slimexx/kernels/peers.h"

namespace slimexx::kernels::peers {

// Whether the call uses this protocol; the same on all ranks. Ranges count words of two bytes and
// may overlap.
bool goes_by_mail(const PeerRegions& p, const PeerRanges& ranges);
// result = the bf16 sum, in rank order, of this rank's range of all ranks' `words`.
const char* sum_by_mail(const PeerRegions& p, const PeerRanges& ranges, const void* words,
                        void* result, cudaStream_t stream);
// words[ranges of rank r] = the share of rank r.
const char* gather_by_mail(const PeerRegions& p, const PeerRanges& ranges, void* words,
                           const void* share, cudaStream_t stream);

}  // namespace slimexx::kernels::peers
