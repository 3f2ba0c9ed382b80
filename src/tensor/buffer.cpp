#include <fmt/format.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {
namespace {

constexpr int64_t kAlignmentBytes = 64;  // a cache line, and an AVX-512 register

struct Counters {
  std::atomic<int64_t> live{0}, peak{0}, count{0};
};
Counters& cpu_counters() {
  static Counters instance;
  return instance;
}

void count_allocation(int64_t bytes) {
  auto& c = cpu_counters();
  const int64_t live = c.live += bytes;
  int64_t peak = c.peak;
  while (live > peak && !c.peak.compare_exchange_weak(peak, live)) {
  }
  ++c.count;
}

int64_t align_up(int64_t bytes) {
  return (bytes + kAlignmentBytes - 1) / kAlignmentBytes * kAlignmentBytes;
}

}  // namespace

Buffer::Buffer(Device device, int64_t size_bytes, std::string what_for)
    : size_bytes_(size_bytes), device_(device), what_for_(std::move(what_for)) {
  SLX_CHECK_GE(size_bytes, 0);
  if (!device.is_cpu()) {
    throw Error(ErrorCode::kEnvironment, "this build has no CUDA", "use --device cpu");
  }
  if (size_bytes == 0) return;
  data_ = std::aligned_alloc(kAlignmentBytes, static_cast<size_t>(align_up(size_bytes)));
  if (data_ == nullptr) {
    throw Error(ErrorCode::kEnvironment,
                fmt::format("not enough host memory for {}: {} wanted, {} in use by slimexx",
                            what_for_, format_bytes(static_cast<double>(size_bytes)),
                            format_bytes(static_cast<double>(cpu_counters().live.load()))),
                "lower train.max_tokens_per_gpu or the KV cache, or use more ranks");
  }
  std::memset(data_, 0, static_cast<size_t>(size_bytes));
  count_allocation(size_bytes);
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
  cpu_counters().live -= size_bytes_;
  std::free(data_);
}

Tensor Buffer::view(DType dtype, std::initializer_list<int64_t> shape, int64_t offset_bytes) const {
  Tensor tensor(static_cast<char*>(data_) + offset_bytes, dtype, device_, shape);
  SLX_CHECK(offset_bytes >= 0 && offset_bytes + tensor.size_bytes() <= size_bytes_,
            "view {} at byte {} of {} bytes ({})", tensor.shape_text(), offset_bytes, size_bytes_,
            what_for_);
  return tensor;
}

void upload(Stream stream, Tensor destination, const void* source) {
  if (stream.is_planning) return;
  SLX_CHECK(destination.is_contiguous() && destination.device().is_cpu());
  if (destination.size_bytes() > 0)
    std::memcpy(destination.raw(), source, static_cast<size_t>(destination.size_bytes()));
}

void download(Stream stream, void* destination, Tensor source) {
  if (stream.is_planning) return;
  SLX_CHECK(source.is_contiguous() && source.device().is_cpu());
  if (source.size_bytes() > 0)
    std::memcpy(destination, source.raw(), static_cast<size_t>(source.size_bytes()));
}

AllocationCounters allocation_counters(Device device) {
  SLX_CHECK(device.is_cpu());
  auto& c = cpu_counters();
  return {c.live, c.peak, c.count};
}

Arena::Arena(Device device, int64_t capacity_bytes, std::string what_for)
    : buffer_(device, align_up(capacity_bytes), what_for),
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
  Tensor tensor(nullptr, dtype, device_, shape);
  const int64_t bytes = align_up(tensor.size_bytes());
  const int64_t offset = used_bytes_;
  used_bytes_ += bytes;
  if (used_bytes_ > high_water_bytes_) high_water_bytes_ = used_bytes_;
  if (planning_) return tensor;
  SLX_CHECK(used_bytes_ <= buffer_.size_bytes(), "arena \"{}\": {} wanted at {} of {} bytes",
            what_for_, tensor.shape_text(), offset, buffer_.size_bytes());
  return Tensor(static_cast<char*>(buffer_.data()) + offset, dtype, device_, shape);
}

void Arena::release_to(Mark mark) {
  SLX_CHECK(mark >= 0 && mark <= used_bytes_, "mark {} of {}", mark, used_bytes_);
  used_bytes_ = mark;
}

void Arena::reserve(int64_t capacity_bytes) {
  SLX_CHECK(used_bytes_ == 0 && !planning_, "arena \"{}\" is in use", what_for_);
  if (capacity_bytes <= buffer_.size_bytes()) return;
  buffer_ = Buffer();
  buffer_ = Buffer(device_, align_up(capacity_bytes), what_for_);
}

}  // namespace slimexx::tensor
