// Sizes and addresses, on the host and on the device.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>

namespace slimexx::kernels {

// Of numbers from 0 on.
template <class A, class B>
__host__ __device__ constexpr auto divide_up(A a, B b) {
  return (a + b - 1) / b;
}

// A null pointer is aligned.
inline bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}

// Whether rows of bf16, `stride` elements apart, start at 16 bytes each. Those of a null pointer
// do.
inline bool has_aligned_rows(const void* pointer, int64_t stride = 0) {
  return is_aligned(pointer, 16) && stride % 8 == 0;
}

// Whether there is such an operand.
inline bool is_given(const void* pointer, int64_t stride = 0) {
  return pointer != nullptr && has_aligned_rows(pointer, stride);
}

inline int log2_of(int64_t power) {
  int result = 0;
  while ((int64_t{1} << result) < power) ++result;
  return result;
}

}  // namespace slimexx::kernels
