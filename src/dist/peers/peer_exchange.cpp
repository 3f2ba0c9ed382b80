#include "dist/peers/peer_exchange.h"

#include "dist/rank_term.h"
#include "slimexx/base/check.h"
#include "slimexx/dist/peer_regions.h"

namespace slimexx::dist {
namespace {

kernels::PeerRanges peer_ranges(std::span<const Range> ranges) {
  kernels::PeerRanges result;
  for (size_t r = 0; r < ranges.size(); ++r) result.of[r] = {ranges[r].begin, ranges[r].end};
  return result;
}

void check_launch(const char* fault, const tensor::Tensor& data) {
  SLX_CHECK(fault == nullptr, "{}: {}", fault, data.shape_text());
}

cudaStream_t queue_of(tensor::Stream stream) { return static_cast<cudaStream_t>(stream.handle); }

}  // namespace

void sum_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& result,
                  const tensor::Tensor& data, std::span<const Range> elements) {
  check_launch(
      kernels::sum_peer_terms(regions_of(memory), memory.place_of(data), result.raw(),
                              rank_term(data.dtype()), peer_ranges(elements), queue_of(stream)),
      data);
}

void sum_to_all_by_peers(const PeerMemory& memory, tensor::Stream stream,
                         const tensor::Tensor& result, const tensor::Tensor& data) {
  check_launch(kernels::sum_peer_terms_to_all(regions_of(memory), memory.place_of(data),
                                              result.raw(), rank_term(data.dtype()),
                                              data.num_elements(), queue_of(stream)),
               data);
}

void gather_by_peers(const PeerMemory& memory, tensor::Stream stream, const tensor::Tensor& data,
                     const tensor::Tensor& share, std::span<const Range> bytes) {
  check_launch(kernels::gather_peer_shares(regions_of(memory), memory.place_of(data), share.raw(),
                                           peer_ranges(bytes), queue_of(stream)),
               data);
}

}  // namespace slimexx::dist
