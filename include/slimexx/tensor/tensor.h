// Views of device memory, their owners, and the arenas that hold all memory of the steady state.
//   Device, Stream   where and in which order work runs (CPU work runs at once, in call order)
//   Buffer           move-only owner of one allocation
//   Tensor           trivially copyable view: pointer, dtype, device, up to four dimensions
//   Arena            bump allocator over one Buffer with marks; a dry run measures its size
// Dimensions are int64, strides in elements. Nothing here is thread-safe except reads.
#pragma once
#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "slimexx/tensor/dtype.h"

namespace slimexx::tensor {

enum class DeviceType : uint8_t { kCpu, kCuda };
struct Device {
  DeviceType type = DeviceType::kCpu;
  int index = 0;
  bool operator==(const Device&) const = default;
  bool is_cpu() const { return type == DeviceType::kCpu; }
};
std::string to_string(Device device);

// CUDA devices that this process can use; 0 in a build without CUDA or without a driver.
int count_cuda_devices();
// Throws Error(kEnvironment) with the reason if `device` cannot be used. Makes a CUDA device
// current.
void select_device(Device device);

// The type of weights, activations and the KV cache on a device: f32 on the CPU, bf16 on CUDA.
DType compute_dtype(Device device);

// A queue of work on a device. CPU streams have no state: operations are complete on return. On a
// planning stream nothing is launched or copied; with a planning arena, the code of a step then
// measures its own memory (ops/context.h).
struct Stream {
  Device device;
  void* handle = nullptr;  // cudaStream_t
  bool is_planning = false;
};
// The device's stream for compute: one per device and process, created at first use.
Stream compute_stream(Device device);
Stream planning_stream(Device device);
// For copies and communication that overlap compute; one per device and process.
Stream side_stream(Device device);
// For kernels that overlap compute, at lower priority; one per device and process.
Stream branch_stream(Device device);
// Returns when all work queued on the stream is complete. Throws Error(kRun) if any of it failed.
void synchronize(Stream stream);

// A point in a stream's queue. A default-constructed event has already passed; so has every event
// on the CPU.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();
  void record(Stream stream);
  void wait_on(Stream stream) const;  // later work on `stream` runs after the event
  // Returns when the event has passed. Throws Error(kRun) if work before it failed.
  void synchronize() const;

 private:
  void* handle_ = nullptr;  // cudaEvent_t
};

class Tensor {
 public:
  static constexpr int kMaxDims = 4;
  Tensor() = default;
  // A contiguous view, row-major.
  Tensor(void* data, DType dtype, Device device, std::initializer_list<int64_t> shape);

  bool defined() const { return data_ != nullptr || num_dims_ > 0; }
  void* raw() const { return data_; }
  template <class T>
  T* data() const {
    return static_cast<T*>(data_);
  }
  float* f32() const { return static_cast<float*>(data_); }
  int32_t* i32() const { return static_cast<int32_t*>(data_); }

  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  int num_dims() const { return num_dims_; }
  int64_t dim(int i) const { return shape_[static_cast<size_t>(i < 0 ? i + num_dims_ : i)]; }
  int64_t stride(int i) const { return stride_[static_cast<size_t>(i < 0 ? i + num_dims_ : i)]; }
  int64_t num_elements() const;
  int64_t size_bytes() const { return num_elements() * dtype_bytes(dtype_); }
  bool is_contiguous() const;

  // Rows [begin, end) of dimension 0.
  Tensor rows(int64_t begin, int64_t end) const;
  // Columns [begin, end) of the last dimension; the view keeps its row stride.
  Tensor columns(int64_t begin, int64_t end) const;
  // [T, parts*D] viewed as [T, parts, D]; works for any view with stride 1 in the last dimension.
  Tensor split_columns(int64_t parts) const;
  // The same elements with another shape; contiguous views only.
  Tensor reshaped(std::initializer_list<int64_t> shape) const;
  // Splits the last dimension into `shape`: [T, h*d] -> [T, h, d]; keeps the other strides.
  Tensor split_last(std::initializer_list<int64_t> shape) const;
  std::string shape_text() const;  // "[12, 64] F32"

 private:
  void* data_ = nullptr;
  std::array<int64_t, kMaxDims> shape_{}, stride_{};
  DType dtype_ = DType::kF32;
  Device device_;
  int8_t num_dims_ = 0;
};

// Copies between host memory and a contiguous tensor, in stream order. upload may return before the
// copy is complete. After that it reads `source` only if `source` lies in a StagingBuffer: keep
// such memory unchanged until the stream has passed the copy. download returns when the data has
// arrived. Both do nothing on a planning stream.
void upload(Stream stream, Tensor destination, const void* source);
void download(Stream stream, void* destination, Tensor source);
// Queues the copy only; on CUDA, `destination` must lie in a StagingBuffer.
void download_later(Stream stream, void* destination, Tensor source);
// Copies the bytes of a contiguous tensor to another of the same size on the same device.
void copy_bytes(Stream stream, Tensor destination, Tensor source);

// Owns zeroed device memory, 64-byte aligned (256 on CUDA). Throws Error(kEnvironment) with
// `what_for` and the size if memory is short. allocation_counters() counts all live bytes.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device device, int64_t size_bytes, std::string what_for);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();
  void* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }
  Device device() const { return device_; }
  // A typed view of bytes [offset_bytes, ...).
  Tensor view(DType dtype, std::initializer_list<int64_t> shape, int64_t offset_bytes = 0) const;

 private:
  void* data_ = nullptr;
  int64_t size_bytes_ = 0;
  Device device_;
  std::string what_for_;
};

// Zeroed host memory that a device can access directly (pinned for CUDA).
class StagingBuffer {
 public:
  StagingBuffer() = default;
  StagingBuffer(Device device, int64_t size_bytes, std::string what_for);
  StagingBuffer(StagingBuffer&& other) noexcept;
  StagingBuffer& operator=(StagingBuffer&& other) noexcept;
  ~StagingBuffer();
  char* data() const { return data_; }
  int64_t size_bytes() const { return size_bytes_; }

 private:
  char* data_ = nullptr;
  int64_t size_bytes_ = 0;
  Device device_;
};

struct AllocationCounters {
  int64_t live_bytes = 0, peak_bytes = 0, num_allocations = 0;
  int64_t num_graphs = 0;  // captured graphs (graph.h); their driver memory is not in the bytes
};
AllocationCounters allocation_counters(Device device);
struct NamedBytes {
  std::string what_for;
  int64_t bytes = 0;
};
// Every live Buffer of the device, largest first.
std::vector<NamedBytes> list_allocations(Device device);
// Memory of a CUDA device: its total, and the part that no process or driver uses.
struct DeviceMemory {
  int64_t free_bytes = 0, total_bytes = 0;
};
DeviceMemory device_memory(Device device);
// "; in use: 16.1 GiB weights, 8.0 GiB KV cache": every live Buffer of the device, largest first.
std::string describe_allocations(Device device);

// Bump allocator. Allocations are freed in reverse order by returning to a mark. A planning arena
// (capacity 0, `planning` true) returns views without memory and only measures, so the code that
// plans is the code that runs. The real arena needs `high_water_bytes`.
//
// Arenas whose ArenaScopes never overlap in time can share another arena, from which allocations
// inside scopes come; their own memory holds the allocations outside scopes.
class Arena {
 public:
  Arena(Device device, int64_t capacity_bytes, std::string what_for);
  static Arena for_planning(Device device, std::string what_for);

  Tensor allocate(DType dtype, std::initializer_list<int64_t> shape);
  using Mark = int64_t;
  Mark mark() const { return used_bytes_; }
  void release_to(Mark mark);
  int64_t used_bytes() const { return used_bytes_; }
  int64_t high_water_bytes() const { return high_water_bytes_; }
  int64_t capacity_bytes() const { return capacity_bytes_; }
  Device device() const { return device_; }
  bool is_planning() const { return planning_; }
  const std::string& what_for() const { return what_for_; }
  // Grows the memory to at least this capacity. Nothing may be allocated.
  void reserve(int64_t capacity_bytes);
  Tensor memory() const { return {base_, DType::kU8, device_, {capacity_bytes_}}; }  // everything
  // Uses `memory` [bytes] U8 of another owner from now on, and frees its own. Nothing may be
  // allocated. The owner must keep the memory, and not use it while this arena has allocations.
  void borrow(Tensor memory);
  // From now on, allocations inside scopes come from `scratch`, which must not move and must
  // outlive this arena. Nothing may be allocated.
  void share_scratch(Arena& scratch);

 private:
  friend class ArenaScope;
  Arena() = default;
  Arena& scope_arena() { return scratch_ != nullptr ? *scratch_ : *this; }
  Buffer buffer_;
  char* base_ = nullptr;  // own buffer or borrowed
  int64_t capacity_bytes_ = 0;
  Device device_;
  bool planning_ = false;
  int64_t used_bytes_ = 0, high_water_bytes_ = 0;
  Arena* scratch_ = nullptr;
  int num_scopes_ = 0;  // open scopes
  std::string what_for_;
};

// Returns the arena to its mark at the end of the scope.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.scope_arena().mark()) {
    ++arena_.num_scopes_;
  }
  ~ArenaScope() {
    --arena_.num_scopes_;
    arena_.scope_arena().release_to(mark_);
  }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace slimexx::tensor
