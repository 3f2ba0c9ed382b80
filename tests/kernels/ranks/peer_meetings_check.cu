// Barriers of ranks whose counters wrap, and more received rows than there is room for.
//
//   peer_meetings_check                 after 2^31 and 2^32 barriers, with a late rank at each
//   peer_meetings_check too_many_rows   ends its process: the kernels must trap
#include <climits>
#include <cstring>

#include "tests/kernels/need_device.h"
#include "tests/kernels/ranks/peer_ranks.cuh"

namespace slimexx::kernels::testing {
namespace {

constexpr int kMeetings = 16;

__global__ void wait_kernel(int64_t nanoseconds) {
  int64_t begin, now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    __nanosleep(1000);
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

// Barriers around the number at which their counter wraps. Before each barrier one rank is late: if
// a barrier does not wait for it, the other ranks read what the late rank wrote before the previous
// barrier.
void check_meetings(int size, unsigned start) {
  current_case = "meetings of " + std::to_string(size) + " ranks from " + std::to_string(start);
  Ranks ranks(size);
  ranks.start_after(start);
  const DeviceArray<char> seen(int64_t{kMeetings} * size * size);
  ranks.begin();
  for (int meeting = 0; meeting < kMeetings; ++meeting)
    for (int r = 0; r < size; ++r) {
      const cudaStream_t stream = ranks.stream(r);
      if (meeting % size == r) wait_kernel<<<1, 1, 0, stream>>>(10'000'000);
      SLX_CUDA(cudaMemsetAsync(ranks.region(r), meeting + 1, 1, stream));
      expect_no_fault(queue_peer_barrier(ranks.regions(r), stream));
      for (int peer = 0; peer < size; ++peer)
        SLX_CUDA(cudaMemcpyAsync(seen.data() + (meeting * size + r) * size + peer,
                                 ranks.region(peer), 1, cudaMemcpyDeviceToDevice, stream));
      expect_no_fault(queue_peer_barrier(ranks.regions(r), stream));
    }
  ranks.wait();
  std::vector<uint16_t> got, expected;
  std::vector<char> bytes(static_cast<size_t>(kMeetings) * size * size);
  SLX_CUDA(cudaMemcpy(bytes.data(), seen.data(), bytes.size(), cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < bytes.size(); ++i) {
    got.push_back(static_cast<uint16_t>(bytes[i]));
    expected.push_back(static_cast<uint16_t>(i / (size * size) + 1));
  }
  expect_bits("what a rank sees of another", got, expected, size);
}

template <class T>
__global__ void fill_kernel(T* terms, int64_t n, T value) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) terms[i] = value;
}

// Like check_meetings, for the barriers of thread blocks in sums: sums of few bf16 words use the
// low-latency protocol, sums of floats do not.
template <class T>
void check_sums(int size, unsigned start, RankTerm type, int64_t n, T (*encode)(float)) {
  current_case = "sums of " + std::to_string(size) + " ranks from " + std::to_string(start) +
                 ", bytes " + std::to_string(sizeof(T));
  Ranks ranks(size);
  ranks.start_after(start);
  const DeviceArray<T> sums(kMeetings * size * n);
  ranks.begin();
  for (int call = 0; call < kMeetings; ++call)
    for (int r = 0; r < size; ++r) {
      const cudaStream_t stream = ranks.stream(r);
      if (call % size == r) wait_kernel<<<1, 1, 0, stream>>>(10'000'000);
      const int64_t place = call % 2 << 20;
      fill_kernel<<<1, 256, 0, stream>>>(reinterpret_cast<T*>(ranks.region(r) + place), n,
                                         encode(static_cast<float>(call + r + 1)));
      expect_no_fault(sum_peer_terms_to_all(ranks.regions(r), place,
                                            sums.data() + (call * size + r) * n, type, n, stream));
    }
  ranks.wait();
  std::vector<T> got(kMeetings * size * n), expected;
  SLX_CUDA(cudaMemcpy(got.data(), sums.data(), got.size() * sizeof(T), cudaMemcpyDeviceToHost));
  for (int64_t i = 0; i < static_cast<int64_t>(got.size()); ++i) {
    const int64_t call = i / (size * n);
    expected.push_back(encode(static_cast<float>(size * (call + 1) + size * (size - 1) / 2)));
  }
  expect_bits("sums by call and rank", got, expected, n);
}

// Counters have 32 bits, and a run of some days passes more than 2^31 barriers.
void check_wraps(int size) {
  for (const unsigned start : {unsigned{INT_MAX} - 3, UINT_MAX - 3}) {
    check_meetings(size, start);
    check_sums<float>(size, start, RankTerm::kF32, 3001, [](float x) { return x; });
    check_sums<uint16_t>(size, start, RankTerm::kBf16, 1000, round_to_bf16);
  }
}

// Two ranks hold one expert each, and every token of both ranks goes to both experts: 8 rows per
// rank.
int check_too_many_rows() {
  constexpr int kRanks = 2, kTokens = 4, kWidth = 8, kRows = kRanks * kTokens;
  Ranks ranks(kRanks);
  const std::vector<int> offsets = {0, kTokens, 2 * kTokens};
  std::vector<int> rows;
  for (int token = 0; token < kTokens; ++token)
    for (int copy = 0; copy < 2; ++copy) rows.push_back(copy * kTokens + token);
  ShownRows shown{.offsets_at = 0, .rows_at = 256, .tokens = kTokens, .top_k = 2};
  for (int64_t& at : shown.inputs_at) at = 4096;
  shown.returned_at = 8192;
  const DeviceArray<char> memory(kRanks * 4096), y(4096), starts(kRanks * 256);
  for (int r = 0; r < kRanks; ++r) {
    SLX_CUDA(
        cudaMemcpy(ranks.region(r), offsets.data(), offsets.size() * 4, cudaMemcpyHostToDevice));
    SLX_CUDA(
        cudaMemcpy(ranks.region(r) + 256, rows.data(), rows.size() * 4, cudaMemcpyHostToDevice));
  }
  ranks.begin();
  const auto runs_of = [&](int r) {
    return PeerRuns{.memory = memory.data() + 4096 * r, .first_copy = r, .copies = 1};
  };
  current_case = "rows of experts";
  for (int r = 0; r < kRanks; ++r)
    expect_no_fault(find_peer_runs(ranks.regions(r), shown, runs_of(r),
                                   reinterpret_cast<int32_t*>(starts.data() + 256 * r),
                                   ranks.stream(r)));
  ranks.wait();
  const auto fetch = [&](int64_t room) {
    expect_no_fault(
        fetch_peer_rows(ranks.regions(0), runs_of(0), 0, y.data(), room, kWidth, ranks.stream(0)));
    return cudaDeviceSynchronize();
  };
  expect_status("room for all", fetch(kRows), cudaSuccess);
  ++comparisons;
  if (fetch(kRows - 1) == cudaSuccess) {
    ++failures;
    std::printf("FAIL %s: a row beyond the room was left out without a word\n",
                current_case.c_str());
  }
  const int status = finish_checks("peer_meetings_check too_many_rows");
  std::fflush(stdout);
  std::_Exit(status);  // the device no longer responds
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  need_device();
  if (argc == 2 && std::strcmp(argv[1], "too_many_rows") == 0) return check_too_many_rows();
  for (const int size : {2, 3, 4}) check_wraps(size);
  return finish_checks("peer_meetings_check");
}
