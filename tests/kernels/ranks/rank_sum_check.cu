// The sum of the terms of all ranks in one device's memory, bit for bit against the host.
//
//   rank_sum_check [small | tiny]      for compute-sanitizer: check_size.h
#include <string>
#include <vector>

#include "slimexx/kernels/rank_sum.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/ranks/host_terms.h"

namespace slimexx::kernels::testing {
namespace {

// `shift`: elements by which the arrays are misaligned.
template <class T>
void check_sum(RankTerm type, int size, int64_t n, int64_t shift) {
  const auto terms = make_terms<T>(size, n);
  std::vector<T> expected;
  for (int64_t i = 0; i < n; ++i) expected.push_back(sum_on_host(terms, i));
  for (int rank = 0; rank < size; ++rank) {
    current_case = "rank sum of " + std::to_string(size) + " ranks on rank " +
                   std::to_string(rank) + ", n " + std::to_string(n) + ", bytes " +
                   std::to_string(sizeof(T)) + ", shift " + std::to_string(shift);
    std::vector<T> others;
    for (int r = 0; r < size; ++r)
      if (r != rank) others.insert(others.end(), terms[r].begin(), terms[r].end());
    const Array<T> own(terms[rank], shift), rest(others, shift);
    expect_status("sum_rank_terms",
                  sum_rank_terms(own.data(), rest.data(), type, rank, size, n, nullptr),
                  cudaSuccess);
    SLX_CUDA(cudaDeviceSynchronize());
    expect_bits("sum", own.get(), expected, 1);
    expect_bits("terms of others", rest.get(), others, n);
  }
}

int run(CheckSize check_size) {
  const auto check_all = [](int size, int64_t n) {
    for (const int64_t shift : {0, 1}) {
      check_sum<float>(RankTerm::kF32, size, n, shift);
      check_sum<uint16_t>(RankTerm::kBf16, size, n, shift);
      check_sum<double>(RankTerm::kF64, size, n, shift);
    }
  };
  for (const int size : {1, 2, 3, 8})
    for (const int64_t n : {1, 7, 64, 3001}) check_all(size, n);
  if (check_size == CheckSize::kAll) {
    check_all(5, 262144);
    check_all(2, 1100003);  // more pieces than threads
  }
  current_case = "refusals";
  expect_status("no such rank", sum_rank_terms(nullptr, nullptr, RankTerm::kF32, 2, 2, 1, nullptr),
                cudaErrorInvalidValue);
  expect_status("no term", sum_rank_terms(nullptr, nullptr, RankTerm::kF32, 0, 2, 0, nullptr),
                cudaSuccess);
  return finish_checks("rank_sum_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
