// Terms of the ranks, and their sums computed on the host.
#pragma once
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

// T: uint16_t for the bits of bf16.
template <class T>
T sum_on_host(const std::vector<std::vector<T>>& terms, int64_t i) {
  if constexpr (std::is_same_v<T, uint16_t>) {
    float sum = to_float(terms[0][i]);
    for (size_t r = 1; r < terms.size(); ++r) sum = sum + to_float(terms[r][i]);
    return round_to_bf16(sum);
  } else {
    T sum = terms[0][i];
    for (size_t r = 1; r < terms.size(); ++r) sum = sum + terms[r][i];
    return sum;
  }
}

template <class T>
std::vector<std::vector<T>> make_terms(int size, int64_t n) {
  std::vector<std::vector<T>> terms(size);
  for (auto& of_rank : terms) {
    for (const float x : random_floats(n, 1.0f)) {
      const float wide = x * static_cast<float>(1 << (of_rank.size() % 12));
      if constexpr (std::is_same_v<T, uint16_t>) {
        of_rank.push_back(round_to_bf16(wide));
      } else {
        of_rank.push_back(static_cast<T>(wide) * static_cast<T>(1.1));
      }
    }
  }
  return terms;
}

}  // namespace slimexx::kernels::testing
