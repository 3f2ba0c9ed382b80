#include "model/weights/stored_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "model/weights/load_faults.h"
#include "slimexx/base/check.h"
#include "slimexx/base/file.h"
#include "slimexx/base/log.h"
#include "slimexx/tensor/convertible.h"

namespace slimexx::model {
namespace {

// "P.experts.3.up_proj.weight" gives {"P.experts.", 3, "up_proj.weight"}.
struct ExpertName {
  std::string prefix;
  int64_t expert = 0;
  std::string matrix;
};

std::optional<ExpertName> parse_expert_name(const std::string& name) {
  constexpr std::string_view kExperts = ".experts.";
  const auto at = name.find(kExperts);
  if (at == std::string::npos) return std::nullopt;
  ExpertName parsed{.prefix = name.substr(0, at + kExperts.size()), .matrix = {}};
  const char* const end = name.data() + name.size();
  const auto [stop, error] =
      std::from_chars(name.data() + parsed.prefix.size(), end, parsed.expert);
  if (error != std::errc() || stop == end || *stop != '.') return std::nullopt;
  parsed.matrix.assign(stop + 1, end);
  return parsed;
}

// Transformers 5 keeps the experts of a layer in two tensors, and may save them in this form:
// gate_up_proj [experts, 2 * intermediate, hidden] with the rows of the gate first, and down_proj
// [experts, hidden, intermediate].
struct Stacked {
  std::string name;
  int64_t rows = 0;       // rows of one expert's matrix in the stacked tensor
  int64_t first_row = 0;  // of the model's tensor in that matrix
};

std::optional<Stacked> find_stacked(const ExpertName& name, int64_t rows) {
  if (name.matrix == "gate_proj.weight") return Stacked{name.prefix + "gate_up_proj", 2 * rows, 0};
  if (name.matrix == "up_proj.weight") return Stacked{name.prefix + "gate_up_proj", 2 * rows, rows};
  if (name.matrix == "down_proj.weight") return Stacked{name.prefix + "down_proj", rows, 0};
  return std::nullopt;
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Per-row scales may have shape [rows, 1] or [rows], per-tensor scales [1] or [].
std::vector<int64_t> without_trailing_ones(std::vector<int64_t> shape) {
  while (!shape.empty() && shape.back() == 1) shape.pop_back();
  return shape;
}

// Buffers that checkpoints may carry and the model does not need.
bool is_ignorable(const std::string& name) {
  return name.find("rotary_emb.inv_freq") != std::string::npos;
}

std::string shape_fault(const io::HfFolder::Located& located, const std::vector<int64_t>& wanted) {
  return fmt::format("{}: shape {} in {}, but config.json needs {}", located.entry->name,
                     shape_text(located.entry->shape), located.file->path(), shape_text(wanted));
}

}  // namespace

void StoredTensor::read(int64_t begin, int64_t end, void* destination) const {
  located.file->read(*located.entry, first + begin, first + end, destination);
}

std::vector<float> StoredTensor::read_scales() const {
  if (!scales) return {};
  const int64_t n = scales->rows * scales->columns;
  const auto dtype = scales->located.entry->dtype;
  std::vector<char> raw(static_cast<size_t>(n * tensor::dtype_bytes(dtype)));
  std::vector<float> values(static_cast<size_t>(n));
  scales->located.file->read(*scales->located.entry, scales->first, scales->first + n, raw.data());
  tensor::convert_elements(dtype, raw.data(), tensor::DType::kF32, values.data(), n);
  return values;
}

void StoredTensor::convert(const tensor::Box& box, std::span<const float> scale_values,
                           const void* raw, float* values) const {
  tensor::convert_elements(dtype(), raw, tensor::DType::kF32, values, tensor::count_elements(box));
  if (!scales) return;
  SLX_CHECK_EQ(std::ssize(scale_values), scales->rows * scales->columns);
  for (int64_t row = box.begin[0]; row < box.end[0]; ++row) {
    const int64_t scale_row = (scales->first_row + row) / scales->block_rows;
    const float* of_row = scale_values.data() + scale_row * scales->columns;
    for (int64_t column = box.begin[1]; column < box.end[1];) {
      const int64_t block = column / scales->block_columns;
      const int64_t stop = std::min(box.end[1], (block + 1) * scales->block_columns);
      for (; column < stop; ++column) *values++ *= of_row[block];
    }
  }
}

StoredTensors::StoredTensors(const io::HfFolder& folder, const WantedTensors& wanted)
    : folder_(folder),
      quantization_(
          read_quantization(folder.config(), join_path(folder.directory(), "config.json"))) {
  for (const auto& [name, shape] : wanted) {
    const auto expert = parse_expert_name(name);
    if (!expert) continue;
    int64_t& count = num_experts_[expert->prefix];
    count = std::max(count, expert->expert + 1);
  }
  for (const auto& [name, shape] : wanted) tensors_.emplace(name, locate(name, shape));
}

StoredTensor StoredTensors::locate(const std::string& name, const std::vector<int64_t>& shape) {
  StoredTensor tensor;
  const io::HfFolder::Located* located = folder_.find(name);
  std::vector<int64_t> stored_shape = shape;
  int64_t first_row = 0, rows = shape[0], matrix = 0;  // matrix: index in the stack
  const auto expert = parse_expert_name(name);
  if (located == nullptr && expert && shape.size() == 2) {
    const auto stacked = find_stacked(*expert, shape[0]);
    if (stacked) located = folder_.find(stacked->name);
    if (located != nullptr) {
      matrix = expert->expert;
      first_row = stacked->first_row;
      rows = stacked->rows;
      stored_shape = {num_experts_.at(expert->prefix), rows, shape[1]};
      tensor.first = (matrix * rows + first_row) * shape[1];
    }
  }
  if (located == nullptr) {
    tensor.fault = name + ": missing";
    return tensor;
  }
  tensor.located = *located;
  used_.insert(located->entry->name);
  if (located->entry->shape != stored_shape) {
    tensor.fault = shape_fault(*located, stored_shape);
  } else if (tensor.dtype() == tensor::DType::kF8E4M3) {
    tensor.fault = find_scales(tensor, shape, first_row, rows, matrix);
  } else if (!tensor::is_convertible(tensor.dtype())) {
    tensor.fault =
        fmt::format("{}: dtype {} cannot be loaded as a dense weight, in {}", located->entry->name,
                    tensor::dtype_name(tensor.dtype()), located->file->path());
  }
  return tensor;
}

// Finds the scales for a tensor of the model. The tensor starts at row first_row of matrix number
// `matrix` of the folder's tensor; these matrices have `rows` rows. Returns the fault.
std::string StoredTensors::find_scales(StoredTensor& tensor, const std::vector<int64_t>& shape,
                                       int64_t first_row, int64_t rows, int64_t matrix) {
  const std::string& name = tensor.located.entry->name;
  if (!quantization_)
    return name + ": FP8 values, but config.json has no quantization_config for their scales";
  if (shape.size() != 2) return name + ": FP8 is supported for matrices only";
  const std::string scale_name = name + quantization_->scale_suffix;
  const io::HfFolder::Located* located = folder_.find(scale_name);
  if (located == nullptr) return fmt::format("{}: missing, but {} is FP8", scale_name, name);
  used_.insert(scale_name);
  StoredScales scales{.located = *located};
  scales.block_rows = quantization_->rows_of_scale(rows);
  scales.block_columns = quantization_->columns_of_scale(shape[1]);
  scales.rows = divide_up(rows, scales.block_rows);
  scales.columns = divide_up(shape[1], scales.block_columns);
  scales.first_row = first_row;
  scales.first = matrix * scales.rows * scales.columns;
  std::vector<int64_t> wanted{scales.rows, scales.columns};
  const auto& whole = tensor.located.entry->shape;
  if (whole.size() == 3) wanted.insert(wanted.begin(), whole[0]);
  if (without_trailing_ones(located->entry->shape) != without_trailing_ones(wanted))
    return fmt::format("{}: shape {} in {}, expected {}: {} of {}", scale_name,
                       shape_text(located->entry->shape), located->file->path(), shape_text(wanted),
                       quantization_->describe(), shape_text(whole));
  if (!tensor::is_convertible(located->entry->dtype))
    return fmt::format("{}: dtype {} cannot be loaded as scales, in {}", scale_name,
                       tensor::dtype_name(located->entry->dtype), located->file->path());
  dequantised_.insert(name);
  tensor.scales = scales;
  return "";
}

std::vector<std::string> StoredTensors::list_faults() const {
  std::vector<std::string> faults;
  std::set<std::string> found;  // tensors of one stack share a fault
  for (const auto& [name, tensor] : tensors_)
    if (!tensor.fault.empty() && found.insert(tensor.fault).second) faults.push_back(tensor.fault);
  return faults;
}

std::vector<std::string> StoredTensors::list_unused() const {
  std::vector<std::string> names;
  for (const std::string& name : folder_.tensor_names()) {
    // With zero shared experts, transformers writes their matrices without elements.
    const bool is_empty = folder_.find(name)->entry->num_elements() == 0;
    if (!used_.contains(name) && !is_ignorable(name) && !is_empty) names.push_back(name);
  }
  return names;
}

std::string StoredTensors::explain_unused(const std::string& name) const {
  for (const std::string_view suffix : {"_scale_inv", "_scale"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string of = name.substr(0, name.size() - suffix.size());
    if (!used_.contains(of)) continue;
    const tensor::DType dtype = folder_.find(of)->entry->dtype;
    if (dtype != tensor::DType::kF8E4M3)
      return fmt::format("scales of {}, which is {}, not FP8", of, tensor::dtype_name(dtype));
    return "scales of a form that differs from quantization_config in config.json";
  }
  return "not a tensor of this model";
}

void StoredTensors::log_quantization(tensor::DType export_dtype) const {
  if (!quantization_) return;
  if (dequantised_.empty()) {
    log_warn(
        "{}: config.json has a quantization_config, but no tensor is FP8: all are read as stored",
        folder_.directory());
    return;
  }
  // used_ also has one tensor of scales for every dequantised tensor.
  const size_t num_tensors = used_.size() - dequantised_.size();
  log_info(
      "{}: FP8 weights (e4m3, {}): {} of {} tensors are dequantised on load; exports are written "
      "as {} without quantization_config",
      folder_.directory(), quantization_->describe(), dequantised_.size(), num_tensors,
      tensor::dtype_name(export_dtype));
}

}  // namespace slimexx::model
