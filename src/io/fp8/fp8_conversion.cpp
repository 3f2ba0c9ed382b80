#include "slimexx/io/fp8_conversion.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "io/folder_files.h"
#include "io/fp8/fp8_config.h"
#include "io/fp8/quantise.h"
#include "io/hf_index.h"
#include "io/quote_name.h"
#include "io/safetensors/safetensors_header.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/filled_file.h"
#include "slimexx/base/thread_pool.h"
#include "slimexx/io/tensor_list.h"
#include "slimexx/observe/console.h"

namespace slimexx::io {
namespace {

using tensor::DType;

constexpr int64_t kChunkElements = int64_t{1} << 20;
constexpr const char* kWeight = ".weight";
// The record of an unfinished conversion: its source folder and its options.
constexpr const char* kRecordName = "fp8_conversion.incomplete";

std::string scale_name(const Fp8Options& options, const std::string& weight) {
  return weight + (options.strategy == Fp8Strategy::kBlock ? "_scale_inv" : "_scale");
}

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

std::vector<int64_t> scale_shape(const Fp8Options& options, const std::vector<int64_t>& shape) {
  switch (options.strategy) {
    case Fp8Strategy::kBlock:
      return {ceil_div(shape[0], options.block_rows), ceil_div(shape[1], options.block_columns)};
    case Fp8Strategy::kChannel:
      return {shape[0], 1};
    case Fp8Strategy::kTensor:
      return {1};
  }
  return {};
}

const TensorEntry& entry_named(const std::vector<TensorEntry>& entries, const std::string& name) {
  return *std::ranges::find(entries, name, &TensorEntry::name);
}

// Reads rows of a matrix as f32.
class RowReader {
 public:
  explicit RowReader(const HfFolder::Located& located) : located_(located) {}
  const float* read(int64_t begin, int64_t end) {
    const TensorEntry& entry = *located_.entry;
    const int64_t columns = entry.shape[1], n = (end - begin) * columns;
    stored_.resize(static_cast<size_t>(n * tensor::dtype_bytes(entry.dtype)));
    values_.resize(static_cast<size_t>(n));
    located_.file->read(entry, begin * columns, end * columns, stored_.data());
    tensor::convert_elements(entry.dtype, stored_.data(), DType::kF32, values_.data(), n);
    return values_.data();
  }

 private:
  HfFolder::Located located_;
  std::vector<char> stored_;
  std::vector<float> values_;
};

// Writes elements of tensors of one new file. Threads may write different elements at once.
class NewFile {
 public:
  NewFile(const std::string& path, const std::string& header,
          const std::vector<TensorEntry>& entries)
      : header_bytes_(header.size()), entries_(entries) {
    FilledFile::create(path, header.size() + (entries.empty() ? 0 : entries.back().end));
    file_.emplace(path);
    file_->write_at(0, header.data(), header.size());
  }
  void write(const std::string& name, int64_t begin, int64_t end, const void* data) {
    const TensorEntry& entry = entry_named(entries_, name);
    const auto width = static_cast<uint64_t>(tensor::dtype_bytes(entry.dtype));
    file_->write_at(header_bytes_ + entry.begin + static_cast<uint64_t>(begin) * width, data,
                    static_cast<uint64_t>(end - begin) * width);
  }
  void flush() { file_->flush(); }

 private:
  uint64_t header_bytes_;
  const std::vector<TensorEntry>& entries_;
  std::optional<FilledFile> file_;
};

void copy_tensor(const HfFolder::Located& located, NewFile& out) {
  const TensorEntry& entry = *located.entry;
  std::vector<char> buffer;
  for (int64_t begin = 0; begin < entry.num_elements(); begin += kChunkElements) {
    const int64_t end = std::min(entry.num_elements(), begin + kChunkElements);
    buffer.resize(static_cast<size_t>((end - begin) * tensor::dtype_bytes(entry.dtype)));
    located.file->read(entry, begin, end, buffer.data());
    out.write(entry.name, begin, end, buffer.data());
  }
}

// Calls body(first row, end row) for bands of whole blocks, on the threads of parallel_for.
template <class Body>
void for_each_band(const Fp8Options& options, const std::vector<int64_t>& shape, const Body& body) {
  const int64_t unit = options.strategy == Fp8Strategy::kBlock ? options.block_rows : 1;
  const int64_t units =
      std::max<int64_t>(1, kChunkElements / std::max<int64_t>(shape[1] * unit, 1));
  const int64_t band = unit * units;
  parallel_for(ceil_div(shape[0], band), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(i * band, std::min(shape[0], (i + 1) * band));
  });
}

float amax_of(const HfFolder::Located& located, const Fp8Options& options) {
  std::atomic<uint32_t> most{0};
  const auto& shape = located.entry->shape;
  for_each_band(options, shape, [&](int64_t begin, int64_t end) {
    RowReader reader(located);
    const float* rows = reader.read(begin, end);
    const auto own =
        std::bit_cast<uint32_t>(largest_magnitude(rows, end - begin, shape[1], shape[1]));
    uint32_t seen = most.load();
    while (own > seen && !most.compare_exchange_weak(seen, own)) {
    }
  });
  return std::bit_cast<float>(most.load());
}

// Quantises a tensor; returns whether all its scales are finite.
bool quantise_tensor(const HfFolder::Located& located, const Fp8Options& options, NewFile& out) {
  const TensorEntry& entry = *located.entry;
  const int64_t columns = entry.shape[1];
  const std::string scales_name = scale_name(options, entry.name);
  const float amax = options.strategy == Fp8Strategy::kTensor ? amax_of(located, options) : 0;
  const int64_t unit = options.strategy == Fp8Strategy::kBlock ? options.block_rows : 1;
  const int64_t scales_per_unit =
      options.strategy == Fp8Strategy::kBlock ? ceil_div(columns, options.block_columns) : 1;
  std::atomic<bool> is_finite{true};
  for_each_band(options, entry.shape, [&](int64_t begin, int64_t end) {
    RowReader reader(located);
    const float* rows = reader.read(begin, end);
    std::vector<uint8_t> q(static_cast<size_t>((end - begin) * columns));
    const bool is_tensor = options.strategy == Fp8Strategy::kTensor;
    const int64_t num_scales = is_tensor ? 1 : ceil_div(end - begin, unit) * scales_per_unit;
    std::vector<float> scales(static_cast<size_t>(num_scales));
    quantise_rows(options, rows, end - begin, columns, amax, q.data(), scales.data());
    for (const float scale : scales)
      if (!(scale < std::numeric_limits<float>::infinity())) is_finite = false;
    out.write(entry.name, begin * columns, end * columns, q.data());
    const int64_t first = is_tensor ? 0 : begin / unit * scales_per_unit;
    out.write(scales_name, first, first + num_scales, scales.data());
  });
  return is_finite;
}

void refuse_quantised(const HfFolder& folder, const TensorEntry& entry) {
  if (entry.dtype != DType::kF8E4M3 && entry.dtype != DType::kF8E5M2) return;
  throw Error(ErrorCode::kInput, fmt::format("tensor {} is FP8 already", quote_name(entry.name)),
              "convert the unquantised model of the same publisher", folder.directory());
}

}  // namespace

Fp8Conversion::Fp8Conversion(const HfFolder& folder, std::string save, const Fp8Options& options)
    : folder_(folder), save_(std::move(save)), options_(options) {
  std::map<std::string, File> files;
  bool any = false;
  for (const auto& [name, file] : map_shards(folder)) {
    const HfFolder::Located* located = folder.find(name);
    const TensorEntry& entry = *located->entry;
    refuse_quantised(folder, entry);
    if (!located->file->unsupported().empty())
      throw Error(ErrorCode::kInput,
                  fmt::format("tensor {} has dtype {}, which this program does not read",
                              quote_name(located->file->unsupported().begin()->first),
                              located->file->unsupported().begin()->second),
                  "convert the model to BF16, F16 or F32 first", located->file->path());
    std::vector<TensorEntry>& entries = files[file].entries;
    if (is_fp8_weight(entry)) {
      any = true;
      entries.push_back({entry.name, DType::kF8E4M3, entry.shape});
      entries.push_back(
          {scale_name(options, entry.name), DType::kF32, scale_shape(options, entry.shape)});
    } else {
      entries.push_back({entry.name, entry.dtype, entry.shape});
    }
  }
  if (!any)
    throw Error(
        ErrorCode::kInput, "no tensor of the folder becomes FP8",
        "matrices named NAME.weight become FP8, except embeddings, heads, routers and norms",
        folder.directory());
  for (auto& [name, file] : files) {
    file.name = name;
    sort_entries(file.entries);
    file.header = render_safetensors_header(file.entries, {{"format", "pt"}}, path_of(name));
    files_.push_back(std::move(file));
  }
}

std::string Fp8Conversion::path_of(const std::string& name) const { return join_path(save_, name); }

Json Fp8Conversion::identity() const {
  Json files = Json::object();
  for (const File& file : files_) {
    const std::string path = join_path(folder_.directory(), file.name);
    files[file.name] = {file_bytes(path),
                        std::filesystem::last_write_time(path).time_since_epoch().count()};
  }
  return {{"from", std::filesystem::weakly_canonical(folder_.directory()).string()},
          {"files", std::move(files)},
          {"strategy", static_cast<int>(options_.strategy)},
          {"block", {options_.block_rows, options_.block_columns}},
          {"scale_rule", static_cast<int>(options_.scale_rule)}};
}

void Fp8Conversion::create() {
  if (is_same_directory(save_, folder_.directory()))
    throw Error(ErrorCode::kUsage, "the folder to write is the folder that is read",
                "name a new folder", save_);
  const std::string record = path_of(kRecordName);
  if (path_exists(record)) {
    if (parse_json_file(record) == identity()) return;
    throw Error(ErrorCode::kUsage,
                "the folder holds an unfinished conversion of another model, of a model that has "
                "changed, or with other options",
                "name a new folder, or remove this one", save_);
  }
  std::error_code error;
  if (path_exists(save_) && !std::filesystem::is_empty(save_, error))
    throw Error(ErrorCode::kUsage, "the folder to write is not empty",
                "name a new folder or remove this one", save_);
  make_directories(save_);
  write_file_atomic(record, identity().dump(2) + "\n");
}

// Files get their final names when they are complete.
bool Fp8Conversion::is_finished(const File& file) const {
  const std::string path = path_of(file.name);
  const uint64_t data_bytes = file.entries.empty() ? 0 : file.entries.back().end;
  if (!path_exists(path) || file_bytes(path) != file.header.size() + data_bytes) return false;
  std::string header(file.header.size(), '\0');
  InputFile(path).read_at(0, header.data(), header.size());
  return header == file.header;
}

void Fp8Conversion::write_file(const File& file, Fp8Summary& summary) const {
  const std::string unfinished = path_of(file.name + ".incomplete");
  NewFile out(unfinished, file.header, file.entries);
  for (const TensorEntry& entry : file.entries) {
    const HfFolder::Located* located = folder_.find(entry.name);
    if (located == nullptr) continue;  // scales are written with their tensor
    if (!is_fp8_weight(*located->entry)) {
      copy_tensor(*located, out);
      ++summary.kept;
      continue;
    }
    if (!quantise_tensor(*located, options_, out)) summary.with_nan.push_back(entry.name);
    ++summary.quantised;
  }
  out.flush();
  FilledFile::rename(unfinished, path_of(file.name));
}

Fp8Summary Fp8Conversion::write(int index, int count, bool show_progress) {
  Fp8Summary summary;
  observe::ProgressBar bar("convert", std::ssize(files_), show_progress);
  for (size_t i = static_cast<size_t>(index); i < files_.size(); i += static_cast<size_t>(count)) {
    if (is_finished(files_[i])) {
      ++summary.skipped_files;
    } else {
      write_file(files_[i], summary);
      ++summary.files;
    }
    bar.advance(count);
  }
  return summary;
}

Json Fp8Conversion::quantization_config() const {
  std::set<std::string> kept;
  for (const std::string& name : folder_.tensor_names()) {
    if (is_fp8_weight(*folder_.find(name)->entry)) continue;
    kept.insert(name.ends_with(kWeight) ? name.substr(0, name.size() - std::string(kWeight).size())
                                        : name);
  }
  return fp8_quantization_config(options_, {kept.begin(), kept.end()});
}

void Fp8Conversion::commit() {
  HfIndex index;
  index.total_bytes = 0;
  for (const File& file : files_) {
    if (!is_finished(file))
      throw Error(ErrorCode::kRun, fmt::format("{} was not written completely", file.name),
                  "run the same command again; it continues where it stopped", save_);
    for (const TensorEntry& entry : file.entries) {
      index.file_of[entry.name] = file.name;
      *index.total_bytes += static_cast<int64_t>(entry.end - entry.begin);
    }
  }
  copy_side_files(folder_.directory(), save_);
  Json config = folder_.config();
  config["quantization_config"] = quantization_config();
  write_file_atomic(path_of("config.json"), config.dump(2) + "\n");
  if (files_.size() != 1 || files_[0].name != kHfSingleName)
    write_file_atomic(path_of(kHfIndexName), render_hf_index(index));
  std::filesystem::remove(path_of(kRecordName));
}

}  // namespace slimexx::io
