#include "tensor_files.h"

#include <cmath>
#include <stdexcept>

#include "slimexx/io/safetensors.h"

namespace slimexx::e2e {

Tensors read_tensors(const std::string& path, const std::string& prefix) {
  const io::SafetensorsFile file(path);
  Tensors tensors;
  for (const auto& entry : file.entries()) {
    if (!entry.name.starts_with(prefix) || entry.dtype != tensor::DType::kF32) continue;
    Values& values = tensors[entry.name.substr(prefix.size())];
    values.shape = entry.shape;
    values.data.resize(static_cast<size_t>(entry.num_elements()));
    file.read(entry, 0, entry.num_elements(), values.data.data());
  }
  return tensors;
}

std::vector<int64_t> read_int64(const std::string& path, const std::string& name) {
  const io::SafetensorsFile file(path);
  const auto* entry = file.find(name);
  if (entry == nullptr || entry->dtype != tensor::DType::kI64)
    throw std::runtime_error(path + " has no int64 tensor " + name);
  std::vector<int64_t> values(static_cast<size_t>(entry->num_elements()));
  file.read(*entry, 0, entry->num_elements(), values.data());
  return values;
}

Difference compare(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) return {.max_abs = HUGE_VAL, .relative = HUGE_VAL};
  Difference d;
  double square = 0, reference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    if (!(difference <= d.max_abs)) d.max_abs = difference, d.where = i;
    square += difference * difference;
    reference += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  d.norm = std::sqrt(reference);
  d.relative = reference > 0 ? std::sqrt(square / reference) : std::sqrt(square);
  return d;
}

}  // namespace slimexx::e2e
