#include "tensor/device_api.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <mutex>

#include "slimexx/base/activity.h"
#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/tensor/cuda_check.h"

namespace slimexx::tensor {

void check_cuda(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clear the error, or a later call would report it again
  int index = -1;
  if (cudaGetDevice(&index) != cudaSuccess) index = -1;
  const std::string what = fmt::format("{} failed on cuda:{}: {} ({})", call, index,
                                       cudaGetErrorString(status), cudaGetErrorName(status));
  if (status == cudaErrorMemoryAllocation)
    throw Error(ErrorCode::kEnvironment, what + describe_allocations({DeviceType::kCuda, index}),
                "lower train.max_tokens_per_gpu or rollout.kv_cache_gib, or use more ranks");
  throw Error(ErrorCode::kRun, what, "run again with CUDA_LAUNCH_BLOCKING=1 to find the kernel");
}

namespace device_api {
namespace {

constexpr int kMaxDevices = 16;
constexpr ShortName kDevice{"the device"};

cudaStream_t as_stream(void* handle) { return static_cast<cudaStream_t>(handle); }
cudaEvent_t as_event(void* handle) { return static_cast<cudaEvent_t>(handle); }

struct DeviceStreams {
  std::mutex mutex;
  std::array<std::array<cudaStream_t, 3>, kMaxDevices> streams{};
};
enum class Queue : uint8_t { kCompute, kSide, kBranch };

void* stream_of(int index, Queue queue) {
  static DeviceStreams all;
  SLX_CHECK(index >= 0 && index < kMaxDevices, "device index {} is not supported", index);
  const std::lock_guard lock(all.mutex);
  cudaStream_t& stream = all.streams[static_cast<size_t>(index)][static_cast<size_t>(queue)];
  if (stream == nullptr) {
    make_current(index);
    int least = 0, greatest = 0;
    SLX_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    SLX_CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking,
                                          queue == Queue::kBranch ? least : greatest));
  }
  return stream;
}

}  // namespace

int count_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : (cudaGetLastError(), 0);
}

void make_current(int index) {
  const int count = count_devices();
  if (index < 0 || index >= count)
    throw Error(ErrorCode::kEnvironment,
                fmt::format("cuda:{} is needed, but {} CUDA devices are visible", index, count),
                "check nvidia-smi and CUDA_VISIBLE_DEVICES, start at most one rank per device, or "
                "use --device cpu");
  SLX_CUDA(cudaSetDevice(index));
  int major = 0, minor = 0;
  SLX_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index));
  SLX_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index));
  if (major != 9 || minor != 0)
    throw Error(ErrorCode::kEnvironment,
                fmt::format("cuda:{} has compute capability {}.{}", index, major, minor),
                "the kernels are built for Hopper (9.0): H100, H200, H20");
}

void* allocate(int index, int64_t bytes) {
  make_current(index);
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    return nullptr;
  }
  check_cuda(status, "cudaMalloc");
  // On the compute stream, so that all later work on the memory runs after this memset.
  SLX_CUDA(cudaMemsetAsync(data, 0, static_cast<size_t>(bytes), as_stream(compute_stream(index))));
  SLX_CUDA(cudaStreamSynchronize(as_stream(compute_stream(index))));
  return data;
}

void release(int index, void* data) noexcept {
  cudaSetDevice(index);
  cudaFree(data);
}

MemoryState memory_state(int index) {
  make_current(index);
  size_t free_bytes = 0, total_bytes = 0;
  SLX_CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
  return {static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

DeviceReport report(int index) {
  cudaDeviceProp properties{};
  SLX_CUDA(cudaGetDeviceProperties(&properties, index));
  int clock_khz = 0, bus_bits = 0;
  if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, index) != cudaSuccess ||
      cudaDeviceGetAttribute(&bus_bits, cudaDevAttrGlobalMemoryBusWidth, index) != cudaSuccess) {
    cudaGetLastError();
    clock_khz = bus_bits = 0;
  }
  // Two transfers per clock.
  return {.name = properties.name, .memory_bytes_per_s = 2e3 * clock_khz * bus_bits / 8};
}

void* allocate_host(int64_t bytes) {
  void* data = nullptr;
  if (cudaMallocHost(&data, static_cast<size_t>(bytes)) == cudaSuccess) return data;
  cudaGetLastError();
  return nullptr;
}

void release_host(void* data) noexcept { cudaFreeHost(data); }

bool lock_pages(void* data, int64_t bytes) {
  if (cudaHostRegister(data, static_cast<size_t>(bytes), cudaHostRegisterPortable) == cudaSuccess) {
    return true;
  }
  cudaGetLastError();
  return false;
}
void unlock_pages(void* data) noexcept { cudaHostUnregister(data); }

void* compute_stream(int index) { return stream_of(index, Queue::kCompute); }
void* side_stream(int index) { return stream_of(index, Queue::kSide); }
void* branch_stream(int index) { return stream_of(index, Queue::kBranch); }

void synchronize(int, void* stream) {
  const OutsideWaitScope wait(kDevice);
  SLX_CUDA(cudaStreamSynchronize(as_stream(stream)));
}

void copy_to_device(int, void* stream, void* destination, const void* source, int64_t bytes) {
  SLX_CUDA(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), cudaMemcpyHostToDevice,
                           as_stream(stream)));
}

// If the destination is not pinned, this waits for the device.
void copy_to_host(int, void* stream, void* destination, const void* source, int64_t bytes) {
  const OutsideWaitScope wait(kDevice);
  SLX_CUDA(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost,
                           as_stream(stream)));
}

void copy_on_device(int, void* stream, void* destination, const void* source, int64_t bytes) {
  SLX_CUDA(cudaMemcpyAsync(destination, source, static_cast<size_t>(bytes),
                           cudaMemcpyDeviceToDevice, as_stream(stream)));
}

void copy_rows_on_device(int, void* stream, StridedBytes destination, StridedBytes source,
                         int64_t width, int64_t rows) {
  SLX_CUDA(cudaMemcpy2DAsync(destination.begin, static_cast<size_t>(destination.stride),
                             source.begin, static_cast<size_t>(source.stride),
                             static_cast<size_t>(width), static_cast<size_t>(rows),
                             cudaMemcpyDeviceToDevice, as_stream(stream)));
}

void* make_event() {
  cudaEvent_t event = nullptr;
  SLX_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void release_event(void* event) noexcept { cudaEventDestroy(as_event(event)); }
void record_event(void* event, void* stream) {
  SLX_CUDA(cudaEventRecord(as_event(event), as_stream(stream)));
}
void make_stream_wait(void* stream, void* event) {
  SLX_CUDA(cudaStreamWaitEvent(as_stream(stream), as_event(event), 0));
}
void synchronize_event(void* event) {
  const OutsideWaitScope wait(kDevice);
  SLX_CUDA(cudaEventSynchronize(as_event(event)));
}

}  // namespace device_api
}  // namespace slimexx::tensor
