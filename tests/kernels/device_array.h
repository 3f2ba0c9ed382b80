// Device memory for the kernel tests and benchmarks, and the check of CUDA calls.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace slimexx::kernels::testing {

inline void check_cuda(cudaError_t error, const char* what, int line) {
  if (error == cudaSuccess) return;
  std::fprintf(stderr, "line %d: %s: %s\n", line, what, cudaGetErrorString(error));
  std::exit(2);
}
#define SLX_CUDA(call) ::slimexx::kernels::testing::check_cuda((call), #call, __LINE__)

template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(int64_t count) : count_(count) {
    SLX_CUDA(cudaMalloc(&data_, static_cast<size_t>(count) * sizeof(T)));
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(other.data_), count_(other.count_) {
    other.data_ = nullptr;
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  DeviceArray& operator=(DeviceArray&&) = delete;
  ~DeviceArray() { cudaFree(data_); }

  T* data() const { return data_; }
  int64_t count() const { return count_; }
  void set_bytes(int value) {
    SLX_CUDA(cudaMemset(data_, value, static_cast<size_t>(count_) * sizeof(T)));
  }
  T get(int64_t index) const {
    T value;
    SLX_CUDA(cudaMemcpy(&value, data_ + index, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }

 private:
  T* data_ = nullptr;
  int64_t count_ = 0;
};

}  // namespace slimexx::kernels::testing
