// Sums and gathers of ranks that access each other's memory, bit for bit against the host. Ranks
// are streams of one device, whose kernels run concurrently only if all of their thread blocks fit
// on it. So arrays are smaller with more ranks.
//
//   peer_exchange_check [small | tiny]      for compute-sanitizer: check_size.h
#include <cstring>
#include <type_traits>

#include "slimexx/kernels/peers.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/ranks/host_terms.h"
#include "tests/kernels/ranks/peer_ranks.cuh"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {
namespace {

// Offset of rank r's array: different on each rank, and on the last rank `odd` bytes off alignment.
int64_t place_of(int rank, int size, int64_t odd) {
  return 4096 * (rank + 1) + (rank + 1 == size ? odd : 0);
}

// How ranks split n elements: equally; in growing parts with gaps between them; or all to one rank.
std::vector<PeerRanges> all_cuts(int64_t n, int size) {
  PeerRanges equal, growing, alone;
  int64_t at = n / 16;
  for (int r = 0; r < size; ++r) {
    equal.of[r] = {r * n / size / 16 * 16, (r + 1) * n / size / 16 * 16};
    const int64_t end = at + n / 2 * r / (size * size);
    growing.of[r] = {at, end};
    at = end + 1;
    alone.of[r] = r == size - 1 ? PeerRange{n / 7, n} : PeerRange{};
  }
  equal.of[size - 1].end = n;
  return {equal, growing, alone};
}

template <class T>
void check_sum(Ranks& ranks, RankTerm type, int64_t n, int64_t odd, bool in_place) {
  const int size = ranks.size();
  const auto terms = make_terms<T>(size, n);
  const DeviceArray<T> results(size * n);
  for (const PeerRanges& cut : all_cuts(n, size)) {
    current_case = "sum ranks " + std::to_string(size) + " n " + std::to_string(n) + " bytes " +
                   std::to_string(sizeof(T)) + " odd " + std::to_string(odd) +
                   (in_place ? " in place" : "");
    const auto at = [&](int r) { return place_of(r, size, odd * int64_t{sizeof(T)}); };
    for (int r = 0; r < size; ++r)
      SLX_CUDA(cudaMemcpy(ranks.region(r) + at(r), terms[r].data(), n * sizeof(T),
                          cudaMemcpyHostToDevice));
    const auto result = [&](int r) {
      return in_place ? reinterpret_cast<T*>(ranks.region(r) + at(r)) + cut.of[r].begin
                      : results.data() + r * n;
    };
    ranks.begin();
    for (int r = 0; r < size; ++r)
      expect_no_fault(
          sum_peer_terms(ranks.regions(r), at(r), result(r), type, cut, ranks.stream(r)));
    ranks.wait();
    for (int r = 0; r < size; ++r) {
      const PeerRange& own = cut.of[r];
      std::vector<T> got(own.end - own.begin), expected;
      SLX_CUDA(cudaMemcpy(got.data(), result(r), got.size() * sizeof(T), cudaMemcpyDeviceToHost));
      for (int64_t i = own.begin; i < own.end; ++i) expected.push_back(sum_on_host(terms, i));
      expect_bits(("rank " + std::to_string(r)).c_str(), got, expected, 1);
      // The rest of the array is as it was.
      std::vector<T> all(n), whole = terms[r];
      SLX_CUDA(
          cudaMemcpy(all.data(), ranks.region(r) + at(r), n * sizeof(T), cudaMemcpyDeviceToHost));
      if (in_place) std::copy(expected.begin(), expected.end(), whole.begin() + own.begin);
      expect_bits(("array of rank " + std::to_string(r)).c_str(), all, whole, 1);
    }
  }
}

// bf16 sums up to some size use the low-latency protocol; all others access the arrays directly.
template <class T>
void check_sum_to_all(Ranks& ranks, RankTerm type, int64_t n, int64_t odd) {
  const int size = ranks.size();
  current_case = "sum to all ranks " + std::to_string(size) + " n " + std::to_string(n) +
                 " bytes " + std::to_string(sizeof(T)) + " odd " + std::to_string(odd);
  const auto terms = make_terms<T>(size, n);
  const auto at = [&](int r) { return place_of(r, size, odd * int64_t{sizeof(T)}); };
  const DeviceArray<T> results(size * (n + 1));
  SLX_CUDA(cudaMemset(results.data(), 0x5a, size * (n + 1) * sizeof(T)));
  std::vector<T> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(sum_on_host(terms, i));
  for (int r = 0; r < size; ++r)
    SLX_CUDA(cudaMemcpy(ranks.region(r) + at(r), terms[r].data(), n * sizeof(T),
                        cudaMemcpyHostToDevice));
  ranks.begin();
  for (int r = 0; r < size; ++r)
    expect_no_fault(sum_peer_terms_to_all(ranks.regions(r), at(r), results.data() + r * (n + 1),
                                          type, n, ranks.stream(r)));
  ranks.wait();
  T behind;
  std::memset(&behind, 0x5a, sizeof(T));
  expected.push_back(behind);
  for (int r = 0; r < size; ++r) {
    std::vector<T> got(n + 1), all(n);
    SLX_CUDA(cudaMemcpy(got.data(), results.data() + r * (n + 1), got.size() * sizeof(T),
                        cudaMemcpyDeviceToHost));
    expect_bits(("rank " + std::to_string(r)).c_str(), got, expected, 1);
    SLX_CUDA(
        cudaMemcpy(all.data(), ranks.region(r) + at(r), n * sizeof(T), cudaMemcpyDeviceToHost));
    expect_bits(("array of rank " + std::to_string(r)).c_str(), all, terms[r], 1);
  }
}

// A chain of calls with changing sizes. The sums of a call are the terms of the next one, so a rank
// that runs ahead would overwrite lines that are not read yet.
void check_mail_chain(Ranks& ranks, int calls) {
  const int size = ranks.size();
  current_case = "mail chain ranks " + std::to_string(size);
  const int64_t n = 4500, other = 1 << 20;
  auto terms = make_terms<uint16_t>(size, n);
  for (int r = 0; r < size; ++r)
    SLX_CUDA(cudaMemcpy(ranks.region(r), terms[r].data(), n * 2, cudaMemcpyHostToDevice));
  ranks.begin();
  for (int call = 0; call < calls; ++call) {
    const int64_t count = call % 3 == 0 ? n : call % 3 == 1 ? 4 : 1001;
    const int64_t from = call % 2 * other, to = other - from;
    for (int r = 0; r < size; ++r) {
      // Copy all n elements first: elements outside the sums keep their values for the next call.
      SLX_CUDA(cudaMemcpyAsync(ranks.region(r) + to, ranks.region(r) + from, n * 2,
                               cudaMemcpyDeviceToDevice, ranks.stream(r)));
      expect_no_fault(sum_peer_terms_to_all(ranks.regions(r), from, ranks.region(r) + to,
                                            RankTerm::kBf16, count, ranks.stream(r)));
    }
    std::vector<uint16_t> sums;
    for (int64_t i = 0; i < count; ++i) sums.push_back(sum_on_host(terms, i));
    for (auto& of_rank : terms) std::copy(sums.begin(), sums.end(), of_rank.begin());
  }
  ranks.wait();
  for (int r = 0; r < size; ++r) {
    std::vector<uint16_t> got(n);
    SLX_CUDA(
        cudaMemcpy(got.data(), ranks.region(r) + calls % 2 * other, n * 2, cudaMemcpyDeviceToHost));
    expect_bits(("rank " + std::to_string(r)).c_str(), got, terms[r], 1);
  }
}

// Gathers of bytes, which are compared as 16-bit values. Ragged ranges end within a word, so they
// never use the low-latency protocol.
void check_gather(Ranks& ranks, int64_t bytes, int64_t odd, bool in_place, bool is_ragged) {
  const int size = ranks.size();
  const int64_t n = bytes / 2;
  const auto shares = make_terms<uint16_t>(size, n);
  const DeviceArray<uint16_t> elsewhere(size * n + 1);
  for (const PeerRanges& cut : all_cuts(n, size)) {
    current_case = "gather ranks " + std::to_string(size) + " bytes " + std::to_string(bytes) +
                   " odd " + std::to_string(odd) + (in_place ? " in place" : "") +
                   (is_ragged ? " ragged" : "");
    PeerRanges in_bytes;
    std::vector<uint16_t> expected(n, 0x5a5a);
    for (int r = 0; r < size; ++r) {
      in_bytes.of[r] = {2 * cut.of[r].begin, 2 * cut.of[r].end};
      for (int64_t i = cut.of[r].begin; i < cut.of[r].end; ++i) expected[i] = shares[r][i];
      if (!is_ragged || in_bytes.of[r].end == in_bytes.of[r].begin) continue;
      --in_bytes.of[r].end;
      uint16_t& last = expected[cut.of[r].end - 1];
      last = static_cast<uint16_t>(0x5a00 | (last & 0xff));
    }
    const auto at = [&](int r) { return place_of(r, size, odd); };
    const auto share = [&](int r) {
      return in_place ? ranks.region(r) + at(r) + in_bytes.of[r].begin
                      : reinterpret_cast<char*>(elsewhere.data() + r * n);
    };
    for (int r = 0; r < size; ++r) {
      SLX_CUDA(cudaMemset(ranks.region(r) + at(r), 0x5a, bytes));
      SLX_CUDA(cudaMemcpy(share(r), shares[r].data() + cut.of[r].begin,
                          in_bytes.of[r].end - in_bytes.of[r].begin, cudaMemcpyHostToDevice));
    }
    ranks.begin();
    for (int r = 0; r < size; ++r)
      expect_no_fault(
          gather_peer_shares(ranks.regions(r), at(r), share(r), in_bytes, ranks.stream(r)));
    ranks.wait();
    for (int r = 0; r < size; ++r) {
      std::vector<uint16_t> got(n);
      SLX_CUDA(cudaMemcpy(got.data(), ranks.region(r) + at(r), bytes, cudaMemcpyDeviceToHost));
      expect_bits(("rank " + std::to_string(r)).c_str(), got, expected, 1);
    }
  }
}

// A chain of many calls with changing ranges, each of which uses the results of the previous one: a
// rank that runs ahead would read or write too early.
template <class T>
void check_chain(Ranks& ranks, RankTerm type, int64_t n, int calls) {
  const int size = ranks.size();
  current_case = "chain ranks " + std::to_string(size) + " n " + std::to_string(n) + " bytes " +
                 std::to_string(sizeof(T));
  auto terms = make_terms<T>(size, n);
  for (int r = 0; r < size; ++r)
    SLX_CUDA(cudaMemcpy(ranks.region(r), terms[r].data(), n * sizeof(T), cudaMemcpyHostToDevice));
  const auto cuts = all_cuts(n, size);
  const auto cut_of = [&](int call) { return cuts[call % cuts.size()]; };
  ranks.begin();
  for (int call = 0; call < calls; ++call) {
    const PeerRanges cut = cut_of(call);
    PeerRanges bytes;
    for (int r = 0; r < size; ++r)
      bytes.of[r] = {cut.of[r].begin * int64_t{sizeof(T)}, cut.of[r].end * int64_t{sizeof(T)}};
    for (int r = 0; r < size; ++r) {
      T* own = reinterpret_cast<T*>(ranks.region(r)) + cut.of[r].begin;
      expect_no_fault(sum_peer_terms(ranks.regions(r), 0, own, type, cut, ranks.stream(r)));
      if (call % 2 == 1)
        expect_no_fault(gather_peer_shares(ranks.regions(r), 0, own, bytes, ranks.stream(r)));
    }
  }
  ranks.wait();
  for (int call = 0; call < calls; ++call) {
    const PeerRanges cut = cut_of(call);
    for (int r = 0; r < size; ++r) {
      std::vector<T> sums;
      for (int64_t i = cut.of[r].begin; i < cut.of[r].end; ++i)
        sums.push_back(sum_on_host(terms, i));
      std::copy(sums.begin(), sums.end(), terms[r].begin() + cut.of[r].begin);
    }
    if (call % 2 == 0) continue;
    for (int from = 0; from < size; ++from)
      for (int r = 0; r < size; ++r)
        std::copy(terms[from].begin() + cut.of[from].begin, terms[from].begin() + cut.of[from].end,
                  terms[r].begin() + cut.of[from].begin);
  }
  for (int r = 0; r < size; ++r) {
    std::vector<T> got(n);
    SLX_CUDA(cudaMemcpy(got.data(), ranks.region(r), n * sizeof(T), cudaMemcpyDeviceToHost));
    expect_bits(("rank " + std::to_string(r)).c_str(), got, terms[r], 1);
  }
}

void check_refusals(Ranks& ranks) {
  current_case = "refusals";
  PeerRanges bad;
  bad.of[0] = {5, 4};
  PeerRegions sharing = ranks.regions(0);
  sharing.waits = false;
  for (const char* fault :
       {sum_peer_terms(ranks.regions(0), 0, ranks.region(0), RankTerm::kF32, bad, nullptr),
        sum_peer_terms(ranks.regions(0), 2, ranks.region(0), RankTerm::kF32, {}, nullptr),
        sum_peer_terms(sharing, 0, ranks.region(0), RankTerm::kF32, {}, nullptr),
        gather_peer_shares(ranks.regions(0), -4, ranks.region(0), {}, nullptr)}) {
    ++comparisons;
    if (fault != nullptr) continue;
    ++failures;
    std::printf("FAIL %s: taken\n", current_case.c_str());
  }
}

int run(CheckSize check_size) {
  for (const int size : {2, 3, 4, 8}) {
    if (check_size == CheckSize::kTiny && size > 3) break;
    Ranks ranks(size);
    // Chosen so that all thread blocks fit on the device at once: a block takes 8 KiB (1 KiB in the
    // low-latency protocol), and 132 blocks run at a time.
    const int64_t most = size == 2 ? 1000003 : size == 8 ? 8189 : (1 << 17) / size - 3;
    for (const int64_t n : {int64_t{64}, int64_t{4096}, most}) {
      if (check_size == CheckSize::kTiny ? n > 4096 : check_size == CheckSize::kSmall && n > 50000)
        break;
      for (const bool in_place : {false, true}) {
        check_sum<float>(ranks, RankTerm::kF32, n, 0, in_place);
        check_sum<uint16_t>(ranks, RankTerm::kBf16, n, 0, in_place);
        check_sum<double>(ranks, RankTerm::kF64, n, 0, in_place);
        check_sum<uint16_t>(ranks, RankTerm::kBf16, n, 1, in_place);
        if (!in_place) {
          check_sum_to_all<float>(ranks, RankTerm::kF32, n, 0);
          for (const int64_t odd : {0, 1, 2})
            check_sum_to_all<uint16_t>(ranks, RankTerm::kBf16, n - odd, odd);
        }
        for (const int64_t odd : {0, 4, 2})
          for (const bool is_ragged : {false, true})
            check_gather(ranks, 2 * n, odd, in_place, is_ragged);
      }
    }
    const int calls = check_size == CheckSize::kAll ? 30 : 6;
    check_chain<float>(ranks, RankTerm::kF32, 3001, calls);
    check_chain<uint16_t>(ranks, RankTerm::kBf16, 3001, calls);
    if (check_size == CheckSize::kAll) check_chain<float>(ranks, RankTerm::kF32, most, calls);
    check_mail_chain(ranks, check_size == CheckSize::kAll ? 40 : 6);
    check_refusals(ranks);
  }
  return finish_checks("peer_exchange_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
