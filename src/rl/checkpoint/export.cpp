#include "slimexx/rl/export.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "rl/checkpoint/export_target.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/folder.h"
#include "slimexx/dist/agreement.h"
#include "slimexx/dist/host.h"
#include "slimexx/io/hf_folder_writer.h"
#include "slimexx/io/owned_files.h"
#include "slimexx/io/tensor_list.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/held_tensors.h"

namespace slimexx::rl {
namespace {

constexpr int64_t kWindowElements = 1 << 20;

// An export holds unquantised values, even if the model was read as FP8.
io::HfWriteOptions export_options(const std::string& template_directory) {
  return {.template_directory = template_directory, .shards = {}, .drops_quantization = true};
}

// Lists all tensors of the model, in the order of its parameters.
std::vector<io::HfTensor> list_tensors(const model::ModelSpec& spec) {
  std::vector<io::HfTensor> tensors;
  std::vector<model::ParameterInfo> infos = model::list_parameters(spec);
  for (model::ParameterInfo& info : infos) model::complete_parts(info);
  for (const model::TensorSource& source : model::list_tensor_sources(infos))
    tensors.push_back(
        {source.name, source.dtype.value_or(spec.checkpoint_dtype), source.shape, {}});
  return tensors;
}

// A pointer to ParameterStore's read_weights or read_gradients.
using ReadValues = void (model::ParameterStore::*)(const model::ParameterInfo&, int64_t, float*,
                                                   int64_t) const;

// Reads elements of a store's parameters one window at a time.
class WindowReader {
 public:
  WindowReader(const model::ParameterStore& store, ReadValues read_values)
      : store_(store), read_(read_values) {}
  // Returns up to n elements, from element `begin` of a parameter on.
  std::span<const float> read(const model::ParameterInfo& info, int64_t begin, int64_t n) {
    if (info.id != parameter_ || begin < begin_ || begin >= begin_ + std::ssize(values_)) {
      parameter_ = info.id;
      begin_ = begin;
      values_.resize(static_cast<size_t>(std::min(kWindowElements, info.num_elements() - begin)));
      (store_.*read_)(info, begin, values_.data(), std::ssize(values_));
    }
    const int64_t first = begin - begin_;
    return std::span<const float>(values_).subspan(
        static_cast<size_t>(first), static_cast<size_t>(std::min(n, std::ssize(values_) - first)));
  }

 private:
  const model::ParameterStore& store_;
  ReadValues read_;
  model::ParameterId parameter_ = model::kNoParameter;
  int64_t begin_ = 0;
  std::vector<float> values_;
};

// Writes this rank's rows of a box.
void write_rows(io::HfFolderWriter& writer, const std::string& name,
                const model::HeldTensor& tensor, const tensor::Box& box,
                const model::BoxPlace& place, const model::ParameterInfo& info, tensor::DType dtype,
                WindowReader& reader) {
  const auto disk = tensor::strides_of(tensor.shape);
  int64_t first = 0;
  for (size_t d = 0; d < disk.size(); ++d) first += box.begin[d] * disk[d];
  std::vector<char> bytes;
  for (const auto& run : tensor::list_runs(tensor::extents_of(box), place.strides, disk)) {
    for (int64_t done = 0; done < run.size;) {
      const auto values = reader.read(info, place.begin + run.from + done, run.size - done);
      bytes.resize(values.size() * static_cast<size_t>(tensor::dtype_bytes(dtype)));
      tensor::convert_elements(tensor::DType::kF32, values.data(), dtype, bytes.data(),
                               std::ssize(values));
      const int64_t begin = first + run.to + done;
      writer.write(name, begin, begin + std::ssize(values), bytes.data());
      done += std::ssize(values);
    }
  }
}

// `dtype_of` gives the type on disk of a tensor.
template <class DTypeOf>
void write_held(io::HfFolderWriter& writer, WindowReader& reader,
                const std::vector<model::ParameterInfo>& infos, const model::HeldTensors& tensors,
                int rank, const DTypeOf& dtype_of) {
  for (const auto& [name, tensor] : tensors.by_name) {
    for (const model::HeldBox& held : tensor.boxes) {
      const model::Holder own = model::find_holder(tensors, held, rank);
      if (own.place == nullptr) continue;
      const tensor::Box rows = model::cut_rows(
          held.box,
          model::share_rows(0, held.box.end[0] - held.box.begin[0], own.index, own.count));
      const auto& info = infos[static_cast<size_t>(own.place->parameter)];
      write_rows(writer, name, tensor, rows, model::place_inside(*own.place, held.box, rows), info,
                 dtype_of(name), reader);
    }
  }
}

}  // namespace

void export_hf(const model::ParameterStore& store, const model::Layout& layout,
               const model::ModelSpec& spec, const std::string& template_directory,
               const std::string& directory, dist::Collective& host) {
  // Write beside the target first: an earlier export stays until the new export is complete.
  const std::string target = resolve_folder(directory), fresh = target + ".new";
  const NameTest is_own = io::exported_files(template_directory);
  const bool is_root = host.rank() == 0;
  std::optional<UnfinishedFolder> unfinished;
  const model::HeldTensors tensors = model::list_held_tensors(layout);
  model::check_covered(tensors);
  const std::vector<io::HfTensor> listed = list_tensors(spec);
  std::map<std::string, tensor::DType> dtypes;
  for (const io::HfTensor& tensor : listed) dtypes.emplace(tensor.name, tensor.dtype);
  io::HfFolderWriter writer(fresh, listed, export_options(template_directory));
  dist::run_agreed(host, [&] {
    if (!is_root) return;
    unfinished.emplace(fresh, is_own);
    writer.create();
  });
  dist::run_agreed(host, [&] {
    WindowReader reader(store, &model::ParameterStore::read_weights);
    write_held(writer, reader, store.infos(), tensors, host.rank(),
               [&](const std::string& name) { return dtypes.at(name); });
    writer.flush();
  });
  double written[1] = {static_cast<double>(writer.written_bytes())};  // exact below 2^53
  dist::all_reduce_sum(host, written);
  dist::run_agreed(host, [&] {
    if (!is_root) return;
    writer.commit(static_cast<uint64_t>(written[0]));
    put_export_in_place(fresh, target, is_own);
  });
}

void refuse_dump_target(const std::string& path) {
  if (!path_exists(path)) return;
  throw Error(ErrorCode::kUsage, "the file exists, and a dump does not overwrite it",
              "choose another folder, or move the file", path);
}

namespace {

void write_values(const model::ParameterStore& store, ReadValues read, bool trained_only,
                  const model::Layout& layout, const std::string& path, dist::Collective& host) {
  model::Layout written;
  for (const auto& infos : layout.ranks) {
    std::vector<model::ParameterInfo> kept;
    for (const model::ParameterInfo& info : *infos)
      if (info.trainable || !trained_only) kept.push_back(info);
    written.ranks.push_back(std::make_shared<const std::vector<model::ParameterInfo>>(kept));
  }
  const model::HeldTensors tensors = model::list_held_tensors(written);
  model::check_covered(tensors);
  const std::filesystem::path file(path);
  const std::string folder = path + ".new";
  io::HfWriteOptions options;
  std::vector<io::HfTensor> listed;
  for (const auto& [name, tensor] : tensors.by_name) {
    listed.push_back({name, tensor::DType::kF32, tensor.shape, {}});
    options.shards[name] = file.filename().string();
  }
  std::optional<UnfinishedFolder> unfinished;
  io::HfFolderWriter writer(folder, listed, options);
  dist::run_agreed(host, [&] {
    if (host.rank() > 0) return;
    refuse_dump_target(path);
    unfinished.emplace(folder, io::converted_files(""));
    writer.create();
  });
  dist::run_agreed(host, [&] {
    WindowReader reader(store, read);
    write_held(writer, reader, store.infos(), tensors, host.rank(),
               [](const std::string&) { return tensor::DType::kF32; });
    writer.flush();
  });
  double bytes[1] = {static_cast<double>(writer.written_bytes())};
  dist::all_reduce_sum(host, bytes);
  dist::run_agreed(host, [&] {
    if (host.rank() > 0) return;
    writer.commit(static_cast<uint64_t>(bytes[0]));
    refuse_dump_target(path);
    rename_path((std::filesystem::path(folder) / file.filename()).string(), path);
  });
}

}  // namespace

void write_weights(const model::ParameterStore& store, const model::Layout& layout,
                   const std::string& path, dist::Collective& host) {
  write_values(store, &model::ParameterStore::read_weights, false, layout, path, host);
}

void write_gradients(const model::ParameterStore& store, const model::Layout& layout,
                     const std::string& path, dist::Collective& host) {
  write_values(store, &model::ParameterStore::read_gradients, true, layout, path, host);
}

void try_export(const model::ModelSpec& spec, const std::string& template_directory,
                const std::string& directory) {
  std::vector<io::HfTensor> tensors = list_tensors(spec);
  io::HfTensor& smallest = *std::ranges::min_element(tensors, {}, io::num_elements);
  smallest.read = [width = tensor::dtype_bytes(smallest.dtype)](int64_t begin, int64_t end,
                                                                void* out) {
    std::memset(out, 0, static_cast<size_t>((end - begin) * width));
  };
  const UnfinishedFolder trial(resolve_folder(directory) + ".try",
                               io::exported_files(template_directory));
  io::write_hf_folder(trial.path(), {smallest}, export_options(template_directory));
}

}  // namespace slimexx::rl
