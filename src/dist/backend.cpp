// Combines the ranks' terms on host memory.
#include "dist/backend.h"

#include <algorithm>
#include <array>

namespace slimexx::dist {
namespace {

using tensor::DType;

constexpr int64_t kBlock = 1024;  // elements per accumulation block

template <class T, class Accumulator>
Accumulator widen(T value) {
  if constexpr (std::is_same_v<T, uint16_t>) return tensor::bf16_to_f32(value);
  return static_cast<Accumulator>(value);
}

template <class T, class Accumulator>
T narrow(Accumulator value) {
  if constexpr (std::is_same_v<T, uint16_t>) return tensor::f32_to_bf16(value);
  return static_cast<T>(value);
}

// T: the stored type; uint16_t for BF16.
template <class T, class Accumulator>
void combine_on_host(const Terms& terms, Combine combine) {
  const auto term_of = [&](int rank) {
    if (rank == terms.rank) return reinterpret_cast<const T*>(terms.own);
    const int place = rank < terms.rank ? rank : rank - 1;
    return reinterpret_cast<const T*>(terms.others) + place * terms.n;
  };
  std::array<Accumulator, kBlock> result;
  for (int64_t begin = 0; begin < terms.n; begin += kBlock) {
    const int64_t n = std::min(kBlock, terms.n - begin);
    for (int rank = 0; rank < terms.size; ++rank) {
      const T* term = term_of(rank) + begin;
      for (int64_t i = 0; i < n; ++i) {
        Accumulator& r = result[static_cast<size_t>(i)];
        const auto value = widen<T, Accumulator>(term[i]);
        r = rank == 0 ? value : combine == Combine::kSum ? r + value : std::max(r, value);
      }
    }
    T* own = reinterpret_cast<T*>(terms.own) + begin;
    for (int64_t i = 0; i < n; ++i) own[i] = narrow<T, Accumulator>(result[static_cast<size_t>(i)]);
  }
}

}  // namespace

void Backend::combine(tensor::Stream, const Terms& terms, Combine combine) {
  switch (terms.dtype) {
    case DType::kF32:
      return combine_on_host<float, float>(terms, combine);
    case DType::kF64:
      return combine_on_host<double, double>(terms, combine);
    default:
      return combine_on_host<uint16_t, float>(terms, combine);  // BF16
  }
}

}  // namespace slimexx::dist
