// Short lists: a token's place is the number of tokens that sort before it. Each block compares 256
// tokens with 256 others and adds its counts by integer atomics, whose order does not matter. Long
// lists would need too many comparisons and use a radix sort.
#include "kernels/rows/token_sort.cuh"

#include <cub/device/device_radix_sort.cuh>

#include "kernels/rows/launch.cuh"

namespace slimexx::kernels::rows {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostCounted = 16384;

int count_token_bits(int64_t vocabulary) {
  int bits = 1;
  while (bits < 31 && (int64_t{1} << bits) < vocabulary) ++bits;
  return bits;
}

cudaError_t sort_pairs(const SortedTokens& s, const int32_t* tokens, int64_t count,
                       int64_t vocabulary, size_t& bytes, cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(s.sort, bytes, tokens, s.tokens, s.scratch, s.index,
                                         static_cast<int>(count), 0, count_token_bits(vocabulary),
                                         stream);
}

__global__ void __launch_bounds__(kThreads) fill_kernel(int32_t* to, int count, bool with_index) {
  enter_kernel();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) to[i] = with_index ? i : 0;
}

// Block (b, c) counts, for each of the 256 tokens from 256b on, how many of the 256 tokens from
// 256c on sort before it, and adds this number to the token's place.
__global__ void __launch_bounds__(kThreads)
    count_places_kernel(int32_t* place, const int32_t* tokens, int count) {
  enter_kernel();
  __shared__ int4 others[kThreads / 4];
  const int lane = static_cast<int>(threadIdx.x);
  const int own = static_cast<int>(blockIdx.x) * kThreads + lane;
  const int first = static_cast<int>(blockIdx.y) * kThreads;
  // INT_MAX pads the end of the list: it sorts before no token.
  reinterpret_cast<int32_t*>(others)[lane] = first + lane < count ? tokens[first + lane] : INT_MAX;
  const int token = own < count ? tokens[own] : 0;
  __syncthreads();
  // An equal token with a lower position sorts before this token.
  const int earlier = min(max(own - first, 0), kThreads);
  const bool mixed = blockIdx.x == blockIdx.y;
  const int bound = token + (earlier > 0 && !mixed ? 1 : 0);
  int before = 0;
#pragma unroll 8
  for (int j = 0; j < kThreads / 4; ++j) {
    const int4 four = others[j];
    before += (four.x < bound) + (four.y < bound) + (four.z < bound) + (four.w < bound);
  }
  if (mixed) {
    for (int j = 0; j < earlier; ++j) before += reinterpret_cast<int32_t*>(others)[j] == token;
  }
  if (own < count && before > 0) atomicAdd(place + own, before);
}

__global__ void __launch_bounds__(kThreads)
    scatter_kernel(const SortedTokens s, const int32_t* tokens, int count) {
  enter_kernel();
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i >= count) return;
  const int place = s.scratch[i];
  s.tokens[place] = tokens[i];
  s.index[place] = i;
}

}  // namespace

SortedTokens cut_token_workspace(void* base, int64_t count, int64_t vocabulary) {
  SortedTokens s{};
  const size_t list = static_cast<size_t>(divide_up(count * int64_t{sizeof(int32_t)}, 256) * 256);
  if (count > kMostCounted) sort_pairs(s, nullptr, count, vocabulary, s.sort_bytes, nullptr);
  auto* bytes = static_cast<char*>(base);
  s.tokens = reinterpret_cast<int32_t*>(bytes);
  s.index = reinterpret_cast<int32_t*>(bytes + list);
  s.scratch = reinterpret_cast<int32_t*>(bytes + 2 * list);
  s.sort = bytes + 3 * list;
  s.bytes = 3 * list + s.sort_bytes;
  return s;
}

cudaError_t sort_tokens(const SortedTokens& sorted, const int32_t* tokens, int64_t count,
                        int64_t vocabulary, cudaStream_t stream) {
  const auto n = static_cast<int>(count);
  const bool counted = count <= kMostCounted;
  const auto blocks = static_cast<unsigned>(divide_up(count, kThreads));
  cudaError_t error =
      launch(fill_kernel, dim3(blocks), kThreads, stream, sorted.scratch, n, !counted);
  if (error != cudaSuccess) return error;
  if (!counted) {
    size_t bytes = sorted.sort_bytes;
    return sort_pairs(sorted, tokens, count, vocabulary, bytes, stream);
  }
  error = launch(count_places_kernel, dim3(blocks, blocks), kThreads, stream, sorted.scratch,
                 tokens, n);
  if (error != cudaSuccess) return error;
  return launch(scatter_kernel, dim3(blocks), kThreads, stream, sorted, tokens, n);
}

}  // namespace slimexx::kernels::rows
