// CUDA operations that the tensor module needs. Two implementations: cuda/device_api.cpp, and
// no_cuda/device_api.cpp for builds without CUDA, which reports no devices and throws from other
// calls.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/tensor/device_kinds.h"
#include "slimexx/tensor/strided_copy.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor::device_api {

int count_devices();
void make_current(int index);  // throws Error(kEnvironment) if the device cannot be used
// Zeroed; null if out of memory.
void* allocate(int index, int64_t bytes);
void release(int index, void* data) noexcept;
struct MemoryState {
  int64_t free_bytes = 0, total_bytes = 0;
};
MemoryState memory_state(int index);
DeviceReport report(int index);
void* allocate_host(int64_t bytes);  // pinned; null on failure
void release_host(void* data) noexcept;
bool lock_pages(void* data, int64_t bytes);  // pins existing memory; false on failure
void unlock_pages(void* data) noexcept;

void* compute_stream(int index);  // created at first use
void* side_stream(int index);
void* branch_stream(int index);  // lower priority
void synchronize(int index, void* stream);
void copy_to_device(int index, void* stream, void* destination, const void* source, int64_t bytes);
void copy_to_host(int index, void* stream, void* destination, const void* source, int64_t bytes);
void copy_on_device(int index, void* stream, void* destination, const void* source, int64_t bytes);
void copy_rows_on_device(int index, void* stream, StridedBytes destination, StridedBytes source,
                         int64_t width, int64_t rows);

void* make_event();
void release_event(void* event) noexcept;
void record_event(void* event, void* stream);
void make_stream_wait(void* stream, void* event);
void synchronize_event(void* event);

void count_graph(Device device);  // in its AllocationCounters (buffer.cpp)

}  // namespace slimexx::tensor::device_api
