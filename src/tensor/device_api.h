// What tensor needs of a CUDA device. Two implementations: cuda/device_api.cpp, and
// no_cuda/device_api.cpp for a build without, where there are no devices and all else throws.
#pragma once
#include <cstdint>
#include <string>

#include "slimexx/tensor/strided_copy.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor::device_api {

int count_devices();
void make_current(int index);  // throws Error(kEnvironment) if the device cannot be used
// Zeroed; null if the device has not that much left.
void* allocate(int index, int64_t bytes);
void release(int index, void* data) noexcept;
struct MemoryState {
  int64_t free_bytes = 0, total_bytes = 0;
};
MemoryState memory_state(int index);
void* allocate_host(int64_t bytes);  // page-locked; null if that fails
void release_host(void* data) noexcept;
bool lock_pages(void* data, int64_t bytes);  // of memory that has them; false if that fails
void unlock_pages(void* data) noexcept;

void* compute_stream(int index);  // made at first use
void* side_stream(int index);
void* branch_stream(int index);  // of lower priority
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

void count_graph(Device device);  // into its AllocationCounters (buffer.cpp)

}  // namespace slimexx::tensor::device_api
