// Collectives of a group whose ranks reach each other's memory: queued on the stream, one kernel
// each. The arrays lie in the regions of `memory`, whose kernels wait for one another.
#pragma once
#include <span>

#include "slimexx/dist/peer_memory.h"

namespace slimexx::dist {

// result [ranges[rank]] gets the sum in rank order of those elements of all ranks' `data`, of which
// it may be a part. One dimension; F32, BF16, F64.
void sum_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& result,
                  const tensor::Tensor& data, std::span<const Range> elements);
// The same of all elements; `result` is elsewhere.
void sum_to_all_by_peers(const PeerMemory& memory, tensor::Stream stream,
                         const tensor::Tensor& result, const tensor::Tensor& data);
// `data` of all ranks gets every rank's share; the ranges are of bytes.
void gather_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& data,
                     const tensor::Tensor& share, std::span<const Range> bytes);

}  // namespace slimexx::dist
