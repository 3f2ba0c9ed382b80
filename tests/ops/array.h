// Host tensors with seeded content, for tests and benchmarks of the ops.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/tensor/tensor.h"

namespace slimexx::ops::testing {

using tensor::DType;

// Owns host memory; lives as long as the array does.
class Array {
 public:
  Array() = default;
  explicit Array(std::initializer_list<int64_t> shape, DType dtype = DType::kF32)
      : buffer_(std::make_shared<tensor::Buffer>(tensor::Device{}, bytes(shape, dtype), "test")),
        view_(buffer_->view(dtype, shape)) {}

  static Array random(std::initializer_list<int64_t> shape, uint64_t seed, double scale = 1.0,
                      double shift = 0.0) {
    Array a(shape);
    PhiloxStream stream(seed, 17);
    for (int64_t i = 0; i < a.size(); ++i)
      a[i] = static_cast<float>(shift + scale * stream.next_normal());
    return a;
  }
  static Array integers(const std::vector<int32_t>& values) {
    Array a({static_cast<int64_t>(values.size())}, DType::kI32);
    for (size_t i = 0; i < values.size(); ++i) a.view_.i32()[i] = values[i];
    return a;
  }
  static Array of(const std::vector<float>& values, std::initializer_list<int64_t> shape) {
    Array a(shape);
    for (size_t i = 0; i < values.size(); ++i) a.view_.f32()[i] = values[i];
    return a;
  }
  Array clone() const {
    Array a = *this;
    a.buffer_ = std::make_shared<tensor::Buffer>(tensor::Device{}, buffer_->size_bytes(), "test");
    std::copy_n(static_cast<char*>(buffer_->data()), buffer_->size_bytes(),
                static_cast<char*>(a.buffer_->data()));
    a.view_ = tensor::Tensor();
    switch (view_.num_dims()) {
      case 1:
        a.view_ = a.buffer_->view(view_.dtype(), {view_.dim(0)});
        break;
      case 2:
        a.view_ = a.buffer_->view(view_.dtype(), {view_.dim(0), view_.dim(1)});
        break;
      case 3:
        a.view_ = a.buffer_->view(view_.dtype(), {view_.dim(0), view_.dim(1), view_.dim(2)});
        break;
      default:
        a.view_ = a.buffer_->view(view_.dtype(),
                                  {view_.dim(0), view_.dim(1), view_.dim(2), view_.dim(3)});
    }
    return a;
  }
  void fill(float value) {
    for (int64_t i = 0; i < size(); ++i) (*this)[i] = value;
  }
  operator tensor::Tensor() const { return view_; }  // NOLINT: reads as the tensor it is
  const tensor::Tensor& view() const { return view_; }
  int64_t size() const { return view_.num_elements(); }
  float& operator[](int64_t i) { return view_.f32()[i]; }
  float operator[](int64_t i) const { return view_.f32()[i]; }

 private:
  static int64_t bytes(std::initializer_list<int64_t> shape, DType dtype) {
    int64_t n = tensor::dtype_bytes(dtype);
    for (int64_t extent : shape) n *= extent;
    return n;
  }
  std::shared_ptr<tensor::Buffer> buffer_;
  tensor::Tensor view_;
};

}  // namespace slimexx::ops::testing
