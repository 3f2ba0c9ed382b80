#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/host_memory.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/tensor/planning.h"
#include "slimexx/tensor/tensor.h"
#include "tensor/device_api.h"

namespace slimexx::tensor {
namespace {

constexpr int64_t kCpuAlignmentBytes = 64;    // a cache line, and an AVX-512 register
constexpr int64_t kCudaAlignmentBytes = 256;  // alignment of cudaMalloc; bulk copies need 128

int64_t align_up(Device device, int64_t bytes) {
  const int64_t alignment = device.is_cpu() ? kCpuAlignmentBytes : kCudaAlignmentBytes;
  return (bytes + alignment - 1) / alignment * alignment;
}

// Live bytes on one device, by purpose.
struct Ledger {
  AllocationCounters counters;
  std::map<std::string, int64_t> live_bytes;
};
struct Ledgers {
  std::mutex mutex;
  std::map<std::pair<DeviceType, int>, Ledger> by_device;
};
// Ledgers of this thread's planning scope; null outside a scope.
std::unique_ptr<Ledgers>& planned_ledgers() {
  static thread_local std::unique_ptr<Ledgers> planned;
  return planned;
}
Ledgers& ledgers() {
  static Ledgers instance;
  return planned_ledgers() ? *planned_ledgers() : instance;
}

void count_allocation(Device device, int64_t bytes, const std::string& what_for) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  Ledger& ledger = all.by_device[{device.type, device.index}];
  ledger.live_bytes[what_for] += bytes;
  ledger.counters.live_bytes += bytes;
  ledger.counters.peak_bytes = std::max(ledger.counters.peak_bytes, ledger.counters.live_bytes);
  ++ledger.counters.num_allocations;
}

void count_release(Device device, int64_t bytes, const std::string& what_for) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  Ledger& ledger = all.by_device[{device.type, device.index}];
  ledger.live_bytes[what_for] -= bytes;
  ledger.counters.live_bytes -= bytes;
}

// In parallel, because this faults the pages in: a host's optimizer state has millions of them.
void fill_with_zeros(char* data, int64_t bytes) {
  constexpr int64_t kPiece = int64_t{1} << 21;
  parallel_for((bytes + kPiece - 1) / kPiece, 1, [=](int64_t begin, int64_t end) {
    std::memset(data + begin * kPiece, 0,
                static_cast<size_t>(std::min(end * kPiece, bytes) - begin * kPiece));
  });
}

// Zeroed address space; pages take memory when first written.
void* reserve_zeros(int64_t bytes) {
  void* data = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return data == MAP_FAILED ? nullptr : data;
}

// Addresses for planned buffers: not canonical, so no process can map them, and each is handed out
// once. They need no memory and count towards no process limit; any access faults.
void* made_up_addresses(int64_t bytes) {
  static std::atomic<uintptr_t> next = uintptr_t{1} << 56;
  return reinterpret_cast<void*>(next.fetch_add(static_cast<uintptr_t>(bytes)));
}

// Pinned buffers of this size or more: all threads fault in huge pages, then the driver pins them.
// In an allocation by the driver, one thread would fault in page after page.
constexpr int64_t kManyPages = int64_t{64} << 20;

char* allocate_page_locked(int64_t bytes) {
  if (bytes < kManyPages) {
    auto* data = static_cast<char*>(device_api::allocate_host(bytes));
    if (data != nullptr) fill_with_zeros(data, bytes);
    return data;
  }
  auto* data = static_cast<char*>(reserve_zeros(bytes));
  if (data == nullptr) return nullptr;
  madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a hint
  fill_with_zeros(data, bytes);
  if (device_api::lock_pages(data, bytes)) return data;
  munmap(data, static_cast<size_t>(bytes));
  return nullptr;
}

void release_page_locked(char* data, int64_t bytes) {
  if (bytes < kManyPages) return device_api::release_host(data);
  device_api::unlock_pages(data);
  munmap(data, static_cast<size_t>(bytes));
}

}  // namespace

bool is_planning() { return planned_ledgers() != nullptr; }

PlanningScope::PlanningScope() {
  SLX_CHECK(!is_planning(), "planning scopes cannot be nested");
  planned_ledgers() = std::make_unique<Ledgers>();
}

PlanningScope::~PlanningScope() { planned_ledgers().reset(); }

void device_api::count_graph(Device device) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  ++all.by_device[{device.type, device.index}].counters.num_graphs;
}

namespace {

std::string gib(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

const char* remedy_for(const std::string& what_for) {
  if (what_for == "weights" || what_for == "gradients")
    return "use a smaller model, or a host with more memory";
  if (what_for == "optimizer state")
    return "use more ranks, which shard the state, or set optimizer.state_dtype to bfloat16";
  if (what_for == "KV cache")
    return "lower rollout.kv_cache_gib or rollout.max_total_tokens (generate: --kv-cache-gib)";
  return "lower train.max_tokens_per_gpu or rollout.kv_cache_gib, or use more ranks";
}

[[noreturn]] void throw_no_room(Device device, int64_t bytes, const std::string& what_for) {
  const char* hint = remedy_for(what_for);
  if (device.is_cpu()) {
    const HostMemory host = host_memory();
    throw Error(
        ErrorCode::kEnvironment,
        fmt::format(
            "not enough host memory for {}: {} needed, {} of {} free, {} in use by slimexx{}",
            what_for, gib(bytes), gib(host.free_bytes), gib(host.total_bytes),
            gib(allocation_counters(device).live_bytes), describe_allocations(device)),
        hint);
  }
  const auto state = device_api::memory_state(device.index);
  throw Error(ErrorCode::kEnvironment,
              fmt::format("not enough memory on {} for {}: {} needed, {} of {} free{}",
                          to_string(device), what_for, gib(bytes), gib(state.free_bytes),
                          gib(state.total_bytes), describe_allocations(device)),
              hint);
}

// Linux overcommits memory and kills the process that writes to it. Host buffers are written at
// once, so refuse large ones up front with an error that names them.
void check_host_memory(int64_t bytes, const std::string& what_for) {
  constexpr int64_t kLarge = int64_t{1} << 28;
  if (bytes < kLarge || is_planning()) return;
  const HostMemory host = host_memory();
  if (host.total_bytes > 0 && bytes > host.free_bytes) throw_no_room({}, bytes, what_for);
}

}  // namespace

AllocationCounters allocation_counters(Device device) {
  Ledgers& all = ledgers();
  const std::lock_guard lock(all.mutex);
  return all.by_device[{device.type, device.index}].counters;
}

std::vector<NamedBytes> list_allocations(Device device) {
  std::vector<NamedBytes> live;
  {
    Ledgers& all = ledgers();
    const std::lock_guard lock(all.mutex);
    for (const auto& [what_for, bytes] : all.by_device[{device.type, device.index}].live_bytes)
      if (bytes > 0) live.push_back({what_for, bytes});
  }
  std::ranges::stable_sort(live, std::greater{}, &NamedBytes::bytes);
  return live;
}

DeviceMemory device_memory(Device device) {
  SLX_CHECK(!device.is_cpu(), "only CUDA devices have device memory");
  const auto state = device_api::memory_state(device.index);
  return {.free_bytes = state.free_bytes, .total_bytes = state.total_bytes};
}

std::string describe_allocations(Device device) {
  std::string text;
  for (const auto& [what_for, bytes] : list_allocations(device))
    text += fmt::format("{}{} {}", text.empty() ? "; in use: " : ", ", gib(bytes), what_for);
  return text;
}

Buffer::Buffer(Device device, int64_t size_bytes, std::string what_for)
    : size_bytes_(size_bytes), device_(device), what_for_(std::move(what_for)) {
  SLX_CHECK_GE(size_bytes, 0);
  if (size_bytes == 0) return;
  const int64_t wanted = align_up(device, size_bytes);
  if (device.is_cpu()) check_host_memory(wanted, what_for_);
  if (is_planning()) {
    data_ = made_up_addresses(wanted);
  } else if (device.is_cpu()) {
    data_ = std::aligned_alloc(kCpuAlignmentBytes, static_cast<size_t>(wanted));
    if (data_ != nullptr) fill_with_zeros(static_cast<char*>(data_), size_bytes);
  } else {
    data_ = device_api::allocate(device.index, wanted);
  }
  if (data_ == nullptr) throw_no_room(device, size_bytes, what_for_);
  count_allocation(device, size_bytes, what_for_);
}

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      device_(other.device_),
      what_for_(std::move(other.what_for_)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(device_, other.device_);
  std::swap(what_for_, other.what_for_);
  return *this;
}

Buffer::~Buffer() {
  if (data_ == nullptr) return;
  count_release(device_, size_bytes_, what_for_);
  if (is_planning()) return;
  if (device_.is_cpu()) {
    std::free(data_);
  } else {
    device_api::release(device_.index, data_);
  }
}

Tensor Buffer::view(DType dtype, std::initializer_list<int64_t> shape, int64_t offset_bytes) const {
  Tensor tensor(static_cast<char*>(data_) + offset_bytes, dtype, device_, shape);
  SLX_CHECK(offset_bytes >= 0 && offset_bytes + tensor.size_bytes() <= size_bytes_,
            "view {} at byte {} exceeds the {} bytes of a buffer ({})", tensor.shape_text(),
            offset_bytes, size_bytes_, what_for_);
  return tensor;
}

StagingBuffer::StagingBuffer(Device device, int64_t size_bytes, std::string what_for)
    : size_bytes_(size_bytes), device_(device) {
  if (size_bytes == 0) return;
  check_host_memory(size_bytes, what_for);
  if (is_planning()) {
    data_ = static_cast<char*>(reserve_zeros(size_bytes));
  } else if (device.is_cpu()) {
    data_ = static_cast<char*>(std::malloc(static_cast<size_t>(size_bytes)));
    if (data_ != nullptr) fill_with_zeros(data_, size_bytes);
  } else {
    data_ = allocate_page_locked(size_bytes);
  }
  if (data_ == nullptr) throw_no_room({}, size_bytes, what_for);
}

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)),
      device_(other.device_) {}

StagingBuffer& StagingBuffer::operator=(StagingBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  std::swap(device_, other.device_);
  return *this;
}

StagingBuffer::~StagingBuffer() {
  if (data_ == nullptr) return;
  if (is_planning()) {
    munmap(data_, static_cast<size_t>(size_bytes_));
  } else if (device_.is_cpu()) {
    std::free(data_);
  } else {
    release_page_locked(data_, size_bytes_);
  }
}

Arena::Arena(Device device, int64_t capacity_bytes, std::string what_for)
    : buffer_(device, align_up(device, capacity_bytes), what_for),
      base_(static_cast<char*>(buffer_.data())),
      capacity_bytes_(buffer_.size_bytes()),
      device_(device),
      what_for_(std::move(what_for)) {}

Arena Arena::for_planning(Device device, std::string what_for) {
  Arena arena;
  arena.device_ = device;
  arena.planning_ = true;
  arena.what_for_ = std::move(what_for);
  return arena;
}

Tensor Arena::allocate(DType dtype, std::initializer_list<int64_t> shape) {
  if (scratch_ != nullptr && num_scopes_ > 0) return scratch_->allocate(dtype, shape);
  Tensor tensor(nullptr, dtype, device_, shape);
  const int64_t bytes = align_up(device_, tensor.size_bytes());
  const int64_t offset = used_bytes_;
  used_bytes_ += bytes;
  if (used_bytes_ > high_water_bytes_) high_water_bytes_ = used_bytes_;
  if (planning_) return tensor;
  SLX_CHECK(used_bytes_ <= capacity_bytes_,
            "arena \"{}\": {} is needed at byte {}, but there are {} bytes", what_for_,
            tensor.shape_text(), offset, capacity_bytes_);
  return Tensor(base_ + offset, dtype, device_, shape);
}

void Arena::release_to(Mark mark) {
  SLX_CHECK(mark >= 0 && mark <= used_bytes_, "mark {} is outside the {} used bytes", mark,
            used_bytes_);
  used_bytes_ = mark;
}

void Arena::reserve(int64_t capacity_bytes) {
  SLX_CHECK(used_bytes_ == 0 && !planning_, "arena \"{}\" is in use", what_for_);
  if (capacity_bytes <= capacity_bytes_) return;
  base_ = nullptr;
  capacity_bytes_ = 0;
  buffer_ = Buffer();
  buffer_ = Buffer(device_, align_up(device_, capacity_bytes), what_for_);
  base_ = static_cast<char*>(buffer_.data());
  capacity_bytes_ = buffer_.size_bytes();
}

void Arena::borrow(Tensor memory) {
  SLX_CHECK(used_bytes_ == 0 && !planning_, "arena \"{}\" is in use", what_for_);
  SLX_CHECK(memory.dtype() == DType::kU8 && memory.is_contiguous() && memory.device() == device_,
            "arena \"{}\" cannot borrow {}", what_for_, memory.shape_text());
  buffer_ = Buffer();
  base_ = memory.data<char>();
  capacity_bytes_ = memory.size_bytes();
}

void Arena::share_scratch(Arena& scratch) {
  SLX_CHECK(used_bytes_ == 0 && num_scopes_ == 0, "arena \"{}\" is in use", what_for_);
  SLX_CHECK(&scratch != this && scratch.scratch_ == nullptr && scratch.planning_ == planning_ &&
                scratch.device_ == device_,
            "arena \"{}\" cannot use \"{}\" as scratch", what_for_, scratch.what_for_);
  scratch_ = &scratch;
}

}  // namespace slimexx::tensor
