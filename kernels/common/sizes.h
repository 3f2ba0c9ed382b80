// Arithmetic on sizes, and checks of alignment.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

// The quotient rounded up, for a >= 0 and b > 0.
template <class A, class B>
__host__ __device__ constexpr auto divide_up(A a, B b) {
  return (a + b - 1) / b;
}

// A null pointer is aligned.
inline bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether each bf16 row, `stride` elements apart, starts at a multiple of 16 bytes. True for a null
// pointer.
inline bool has_aligned_rows(const void* pointer, int64_t stride = 0) {
  return is_aligned(pointer, 16) && stride % 8 == 0;
}

// Whether the operand is not null and has aligned rows.
inline bool is_given(const void* pointer, int64_t stride = 0) {
  return pointer != nullptr && has_aligned_rows(pointer, stride);
}

inline int log2_of(int64_t power) {
  int result = 0;
  while ((int64_t{1} << result) < power) ++result;
  return result;
}

}  // namespace slimexx::kernels
