// Inputs and expected results for the checks of a Collective. Every rank can compute them for all
// ranks.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "slimexx/base/philox.h"
#include "slimexx/dist/ranges.h"
#include "slimexx/tensor/dtype.h"

namespace slimexx::dist {

using Bytes = std::vector<char>;

// Rank r's bytes, different for each rank; every rank can compute them.
inline Bytes make_bytes(int rank, int64_t n) {
  Bytes bytes(static_cast<size_t>(n));
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<char>((i * 31 + (i >> 8) * 17 + static_cast<size_t>(rank) * 101) % 251);
  return bytes;
}

// Rank r's terms in the given type: normal numbers of many magnitudes, so that the order of a sum
// shows.
inline Bytes make_terms(int rank, int64_t n, tensor::DType dtype) {
  PhiloxStream random(static_cast<uint64_t>(100 + rank), 3);
  std::vector<double> values(static_cast<size_t>(n));
  for (double& v : values)
    v = random.next_normal() * std::exp2(static_cast<double>(random.next_below(12)));
  Bytes bytes(values.size() * static_cast<size_t>(tensor::dtype_bytes(dtype)));
  tensor::convert_elements(tensor::DType::kF64, values.data(), dtype, bytes.data(), n);
  return bytes;
}

template <class T>
T at(const Bytes& bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
  return value;
}
template <class T>
inline void set(Bytes& bytes, int64_t i, T value) {
  std::memcpy(bytes.data() + static_cast<size_t>(i) * sizeof(T), &value, sizeof(T));
}

// Element i of a sum in rank order, or of a maximum, as defined in numerics.md.
inline void combine_element(const std::vector<Bytes>& terms, tensor::DType dtype, int64_t i,
                            bool sums, Bytes& result) {
  const auto fold = [&]<class T>(auto read, T) {
    T value = read(terms[0]);
    for (size_t r = 1; r < terms.size(); ++r)
      value = sums ? value + read(terms[r]) : std::max(value, read(terms[r]));
    return value;
  };
  if (dtype == tensor::DType::kF64) {
    set(result, i, fold([&](const Bytes& b) { return at<double>(b, i); }, 0.0));
  } else if (dtype == tensor::DType::kF32) {
    set(result, i, fold([&](const Bytes& b) { return at<float>(b, i); }, 0.0f));
  } else {
    const auto read = [&](const Bytes& b) { return tensor::bf16_to_f32(at<uint16_t>(b, i)); };
    set(result, i, tensor::f32_to_bf16(fold(read, 0.0f)));
  }
}

// The rows of a range followed by a zero, so that a buffer without rows is not empty.
inline Bytes slice(const Bytes& all, const Range& rows, int64_t width) {
  Bytes bytes(all.begin() + rows.begin * width, all.begin() + rows.end * width);
  bytes.push_back(0);
  return bytes;
}

}  // namespace slimexx::dist
