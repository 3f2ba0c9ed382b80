#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "slimexx/io/tensor_list.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::io {
namespace {

constexpr int64_t kChunkElements = int64_t{1} << 20;

std::string shape_text(const HfTensor& t) { return fmt::format("[{}]", fmt::join(t.shape, ", ")); }

struct Distance {
  bool is_equal = true;  // bit for bit
  double largest = 0;    // largest difference; NaN if unknown
};

void add_chunk(tensor::DType dtype, const std::vector<char>& a, const std::vector<char>& b,
               int64_t n, Distance& distance) {
  if (std::memcmp(a.data(), b.data(), static_cast<size_t>(n * tensor::dtype_bytes(dtype))) == 0) {
    return;
  }
  distance.is_equal = false;
  if (!tensor::is_convertible(dtype)) {
    distance.largest = std::numeric_limits<double>::quiet_NaN();
    return;
  }
  std::vector<double> x(static_cast<size_t>(n)), y(x.size());
  tensor::convert_elements(dtype, a.data(), tensor::DType::kF64, x.data(), n);
  tensor::convert_elements(dtype, b.data(), tensor::DType::kF64, y.data(), n);
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = x[i] == y[i] ? 0 : std::abs(x[i] - y[i]);
    if (std::isnan(d) || d > distance.largest) distance.largest = d;
    if (std::isnan(d)) return;
  }
}

Distance measure(const HfTensor& expected, const HfTensor& found) {
  Distance distance;
  std::vector<char> a, b;
  const int64_t n = num_elements(expected), width = tensor::dtype_bytes(expected.dtype);
  for (int64_t begin = 0; begin < n && !std::isnan(distance.largest); begin += kChunkElements) {
    const int64_t end = std::min(n, begin + kChunkElements);
    a.resize(static_cast<size_t>((end - begin) * width));
    b.resize(a.size());
    expected.read(begin, end, a.data());
    found.read(begin, end, b.data());
    add_chunk(expected.dtype, a, b, end - begin, distance);
  }
  return distance;
}

Difference compare(const HfTensor& expected, const HfTensor& found) {
  Difference d{expected.name, shape_text(expected), std::string(tensor::dtype_name(expected.dtype)),
               "0"};
  if (expected.dtype != found.dtype || expected.shape != found.shape) {
    d.is_equal = false;
    d.verdict = fmt::format("is {} {}", shape_text(found), tensor::dtype_name(found.dtype));
    return d;
  }
  const Distance distance = measure(expected, found);
  d.is_equal = distance.is_equal;
  if (!d.is_equal) {
    d.verdict = std::isnan(distance.largest) ? "differs" : fmt::format("{:.3e}", distance.largest);
  }
  return d;
}

Difference one_sided(const HfTensor& t, const char* verdict) {
  return {t.name, shape_text(t), std::string(tensor::dtype_name(t.dtype)), verdict, false};
}

}  // namespace

std::vector<Difference> compare_tensors(const TensorList& expected, const TensorList& found) {
  std::vector<Difference> rows;
  size_t e = 0, f = 0;
  while (e < expected.size() || f < found.size()) {
    const bool only_expected =
        f == found.size() || (e < expected.size() && expected[e].name < found[f].name);
    const bool only_found =
        e == expected.size() || (f < found.size() && found[f].name < expected[e].name);
    if (only_expected) {
      rows.push_back(one_sided(expected[e++], "missing"));
    } else if (only_found) {
      rows.push_back(one_sided(found[f++], "not expected"));
    } else {
      rows.push_back(compare(expected[e++], found[f++]));
    }
  }
  return rows;
}

}  // namespace slimexx::io
