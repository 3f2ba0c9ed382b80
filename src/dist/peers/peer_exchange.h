// Collectives on peer memory: one kernel each, queued on the stream. The arrays lie in the regions
// of `memory`, and kernels_wait() must be true.
#pragma once
#include <span>

#include "slimexx/dist/peer_memory.h"

namespace slimexx::dist {

// `result` = the sum, in rank order, of the range elements[rank] of all ranks' `data`. `result` may
// be that range of this rank's `data`. One dimension; F32, BF16, F64.
void sum_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& result,
                  const tensor::Tensor& data, std::span<const Range> elements);
// Like sum_by_peers for all elements, with the result on every rank; `result` must not overlap
// `data`.
void sum_to_all_by_peers(const PeerMemory& memory, tensor::Stream stream,
                         const tensor::Tensor& result, const tensor::Tensor& data);
// Writes every rank's `share` into `data` of all ranks. `bytes`: ranges in bytes, by rank.
void gather_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& data,
                     const tensor::Tensor& share, std::span<const Range> bytes);

}  // namespace slimexx::dist
