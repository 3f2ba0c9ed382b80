#include <cstring>
#include <utility>

#include "slimexx/base/check.h"
#include "slimexx/base/error.h"
#include "slimexx/tensor/planning.h"
#include "slimexx/tensor/strided_copy.h"
#include "slimexx/tensor/tensor.h"
#include "tensor/device_api.h"

namespace slimexx::tensor {

int count_cuda_devices() { return device_api::count_devices(); }

void select_device(Device device) {
  if (!device.is_cpu()) device_api::make_current(device.index);
}

DType compute_dtype(Device device) { return device.is_cpu() ? DType::kF32 : DType::kBF16; }

Stream compute_stream(Device device) {
  if (is_planning()) return planning_stream(device);
  return {.device = device,
          .handle = device.is_cpu() ? nullptr : device_api::compute_stream(device.index)};
}

Stream side_stream(Device device) {
  if (is_planning()) return planning_stream(device);
  return {.device = device,
          .handle = device.is_cpu() ? nullptr : device_api::side_stream(device.index)};
}

Stream branch_stream(Device device) {
  if (is_planning()) return planning_stream(device);
  return {.device = device,
          .handle = device.is_cpu() ? nullptr : device_api::branch_stream(device.index)};
}

Stream planning_stream(Device device) { return {.device = device, .is_planning = true}; }

void synchronize(Stream stream) {
  if (!stream.device.is_cpu() && !stream.is_planning)
    device_api::synchronize(stream.device.index, stream.handle);
}

namespace {

bool has_work(Stream stream, const Tensor& tensor) {
  if (stream.is_planning || tensor.size_bytes() == 0) return false;
  SLX_CHECK(tensor.is_contiguous() && tensor.device() == stream.device,
            "{} on {} is strided, or is not on the stream's device {}", tensor.shape_text(),
            to_string(tensor.device()), to_string(stream.device));
  return true;
}

}  // namespace

void upload(Stream stream, Tensor destination, const void* source) {
  if (!has_work(stream, destination)) return;
  if (stream.device.is_cpu()) {
    std::memcpy(destination.raw(), source, static_cast<size_t>(destination.size_bytes()));
  } else {
    device_api::copy_to_device(stream.device.index, stream.handle, destination.raw(), source,
                               destination.size_bytes());
  }
}

void download_later(Stream stream, void* destination, Tensor source) {
  if (!has_work(stream, source)) return;
  if (stream.device.is_cpu()) {
    std::memcpy(destination, source.raw(), static_cast<size_t>(source.size_bytes()));
  } else {
    device_api::copy_to_host(stream.device.index, stream.handle, destination, source.raw(),
                             source.size_bytes());
  }
}

void download(Stream stream, void* destination, Tensor source) {
  download_later(stream, destination, source);
  synchronize(stream);
}

void copy_bytes(Stream stream, Tensor destination, Tensor source) {
  SLX_CHECK_EQ(destination.size_bytes(), source.size_bytes());
  if (!has_work(stream, source) || !has_work(stream, destination)) return;
  if (stream.device.is_cpu()) {
    std::memmove(destination.raw(), source.raw(), static_cast<size_t>(source.size_bytes()));
  } else {
    device_api::copy_on_device(stream.device.index, stream.handle, destination.raw(), source.raw(),
                               source.size_bytes());
  }
}

void copy_row_bytes(Stream stream, StridedBytes destination, StridedBytes source, int64_t width,
                    int64_t rows) {
  SLX_CHECK(width >= 0 && destination.stride >= width && source.stride >= width,
            "rows of {} bytes overlap with strides {} and {}", width, source.stride,
            destination.stride);
  if (stream.is_planning || width == 0 || rows == 0) return;
  if (!stream.device.is_cpu())
    return device_api::copy_rows_on_device(stream.device.index, stream.handle, destination, source,
                                           width, rows);
  for (int64_t row = 0; row < rows; ++row)
    std::memmove(static_cast<char*>(destination.begin) + row * destination.stride,
                 static_cast<const char*>(source.begin) + row * source.stride,
                 static_cast<size_t>(width));
}

Event::Event(Event&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

Event::~Event() {
  if (handle_ != nullptr) device_api::release_event(handle_);
}

void Event::record(Stream stream) {
  if (stream.device.is_cpu() || stream.is_planning) return;
  if (handle_ == nullptr) handle_ = device_api::make_event();
  device_api::record_event(handle_, stream.handle);
}

void Event::wait_on(Stream stream) const {
  if (handle_ != nullptr && !stream.is_planning)
    device_api::make_stream_wait(stream.handle, handle_);
}

void Event::synchronize() const {
  if (handle_ != nullptr) device_api::synchronize_event(handle_);
}

}  // namespace slimexx::tensor
