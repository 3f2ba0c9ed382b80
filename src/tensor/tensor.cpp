#include "slimexx/tensor/tensor.h"

#include <fmt/format.h>

#include "slimexx/base/check.h"

namespace slimexx::tensor {

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : fmt::format("cuda:{}", device.index);
}

Tensor::Tensor(void* data, DType dtype, Device device, std::initializer_list<int64_t> shape)
    : data_(data), dtype_(dtype), device_(device), num_dims_(static_cast<int8_t>(shape.size())) {
  SLX_CHECK_LE(static_cast<int>(shape.size()), kMaxDims);
  size_t i = 0;
  for (int64_t extent : shape) shape_[i++] = extent;
  int64_t stride = 1;
  for (int d = num_dims_ - 1; d >= 0; --d) {
    stride_[static_cast<size_t>(d)] = stride;
    stride *= shape_[static_cast<size_t>(d)];
  }
}

int64_t Tensor::num_elements() const {
  if (num_dims_ == 0) return 0;
  int64_t n = 1;
  for (int d = 0; d < num_dims_; ++d) n *= dim(d);
  return n;
}

bool Tensor::is_contiguous() const {
  int64_t expected = 1;
  for (int d = num_dims_ - 1; d >= 0; --d) {
    if (dim(d) != 1 && stride(d) != expected) return false;
    expected *= dim(d);
  }
  return true;
}

Tensor Tensor::rows(int64_t begin, int64_t end) const {
  SLX_CHECK(0 <= begin && begin <= end && end <= dim(0), "rows [{}, {}) are not in {}", begin, end,
            shape_text());
  Tensor view = *this;
  view.shape_[0] = end - begin;
  if (data_ != nullptr)
    view.data_ = static_cast<char*>(data_) + begin * stride(0) * dtype_bytes(dtype_);
  return view;
}

Tensor Tensor::columns(int64_t begin, int64_t end) const {
  SLX_CHECK(0 <= begin && begin <= end && end <= dim(-1), "columns [{}, {}) are not in {}", begin,
            end, shape_text());
  Tensor view = *this;
  view.shape_[static_cast<size_t>(num_dims_ - 1)] = end - begin;
  if (data_ != nullptr)
    view.data_ = static_cast<char*>(data_) + begin * stride(-1) * dtype_bytes(dtype_);
  return view;
}

Tensor Tensor::split_columns(int64_t parts) const {
  SLX_CHECK(num_dims_ >= 1 && num_dims_ < kMaxDims && stride(-1) == 1 && parts > 0 &&
                dim(-1) % parts == 0,
            "{} cannot be split into {} parts", shape_text(), parts);
  Tensor view = *this;
  const size_t last = static_cast<size_t>(num_dims_);
  view.num_dims_ = static_cast<int8_t>(num_dims_ + 1);
  view.shape_[last] = dim(-1) / parts;
  view.stride_[last] = 1;
  view.shape_[last - 1] = parts;
  view.stride_[last - 1] = view.shape_[last];
  return view;
}

Tensor Tensor::reshaped(std::initializer_list<int64_t> shape) const {
  SLX_CHECK(is_contiguous(), "a strided view {} cannot be reshaped", shape_text());
  Tensor view(data_, dtype_, device_, shape);
  SLX_CHECK_EQ(view.num_elements(), num_elements());
  return view;
}

Tensor Tensor::split_last(std::initializer_list<int64_t> shape) const {
  const int kept = num_dims_ - 1;
  SLX_CHECK_EQ(stride(-1), 1);
  SLX_CHECK_LE(kept + static_cast<int>(shape.size()), kMaxDims);
  const Tensor last(nullptr, dtype_, device_, shape);
  SLX_CHECK_EQ(last.num_elements(), dim(-1));
  Tensor view = *this;
  for (int d = 0; d < last.num_dims(); ++d) {
    view.shape_[static_cast<size_t>(kept + d)] = last.dim(d);
    view.stride_[static_cast<size_t>(kept + d)] = last.stride(d);
  }
  view.num_dims_ = static_cast<int8_t>(kept + last.num_dims());
  return view;
}

std::string Tensor::shape_text() const {
  std::string text = "[";
  for (int d = 0; d < num_dims_; ++d) text += fmt::format("{}{}", d ? ", " : "", dim(d));
  return fmt::format("{}] {}", text, dtype_name(dtype_));
}

}  // namespace slimexx::tensor
