// A tiny checkpoint as a policy, with f32 results of PyTorch and transformers to compare with.
#pragma once
#include <gtest/gtest.h>
#include <cstdint>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "slimexx/base/error.h"
#include "slimexx/io/hf_folder.h"
#include "slimexx/model/boxes.h"
#include "slimexx/model/families.h"
#include "slimexx/ops/policy_loss.h"
#include "slimexx/train/trainer.h"
#include "test_paths.h"

namespace slimexx::train {

inline constexpr double kLogProbTolerance = 2e-4;   // absolute
inline constexpr double kGradientTolerance = 1e-3;  // relative, per tensor

inline std::vector<float> read_floats(const io::SafetensorsFile& file, const std::string& name) {
  const io::TensorEntry* entry = file.find(name);
  if (entry == nullptr) throw Error(ErrorCode::kInput, "missing " + name, "", file.path());
  std::vector<float> values(static_cast<size_t>(entry->num_elements()));
  file.read(*entry, 0, entry->num_elements(), values.data());
  return values;
}

struct Oracle {
  explicit Oracle(const std::string& directory, bool trains_mtp = false)
      : folder(io::HfFolder::open(directory)),
        file(directory + "/oracle.safetensors"),
        spec(read_spec(folder, directory, trains_mtp)),
        decoder(spec, {}, 256),
        store(spec, {}, true) {
    model::load_hf_weights(store, spec, folder);
    const io::TensorEntry* ids = file.find("input_ids");
    batch = ids->shape[0];
    length = ids->shape[1];
    input_ids.resize(static_cast<size_t>(ids->num_elements()));
    file.read(*ids, 0, ids->num_elements(), input_ids.data());
    mask = read_floats(file, "response_mask");
  }

  static model::ModelSpec read_spec(const io::HfFolder& folder, const std::string& directory,
                                    bool trains_mtp) {
    model::ModelSpec spec = model::read_model_spec(folder.config(), directory + "/config.json");
    model::drop_missing_mtp(spec, folder);
    for (model::MtpSpec& mtp : spec.mtp) mtp.is_trained = trains_mtp;
    return spec;
  }
  // Row b, tokens [0, end); the response starts at token `start`.
  Sample sample(int64_t b, int64_t start, int64_t end) const {
    Sample s;
    for (int64_t t = 0; t < end; ++t)
      s.tokens.push_back(static_cast<int32_t>(input_ids[static_cast<size_t>(b * length + t)]));
    s.response_length = end - start;
    s.loss_mask.assign(static_cast<size_t>(s.response_length), 1);
    return s;
  }
  // Row b with the response that the oracle's mask selects.
  Sample masked_sample(int64_t b, int64_t* start) const {
    const float* row = mask.data() + b * length;
    *start = std::find(row, row + length, 1.0f) - row;
    const int64_t end =
        length - (std::find(std::reverse_iterator(row + length), std::reverse_iterator(row), 1.0f) -
                  std::reverse_iterator(row + length));
    return sample(b, *start, end);
  }
  std::vector<float> slice(const std::vector<float>& values, int64_t b, int64_t start,
                           int64_t n) const {
    const auto begin = values.begin() + b * (length - 1) + start - 1;
    return {begin, begin + n};
  }

  // All rows as supervised samples.
  std::vector<Sample> masked_samples() const {
    std::vector<Sample> samples;
    int64_t start = 0;
    for (int64_t b = 0; b < batch; ++b) samples.push_back(masked_sample(b, &start));
    return samples;
  }

  Trainer trainer(const TrainOptions& options = {}) {
    OptimizerOptions optimizer;
    optimizer.lr = 0;
    return Trainer(decoder, store, ranks, dist::groups_of_one(), options, optimizer, 1.0f, {});
  }

  bool is_mtp(const model::ParameterInfo& info) const {
    return info.parts[0].name.starts_with("model.layers." + std::to_string(spec.num_layers()) +
                                          ".");
  }
  // Compares gradients of the MTP layer, or of all other layers.
  void expect_gradients(const std::string& prefix, bool of_mtp = false) const {
    struct Difference {
      double squares = 0, norm = 0;
    };
    std::map<std::string, Difference> differences;  // by the tensor's name on disk
    for (const auto& info : store.infos()) {
      if (!info.trainable || is_mtp(info) != of_mtp) continue;
      const float* gradient = store.gradient(info.id).f32();
      for (const auto& run : model::list_runs(info)) {
        const std::string& name = info.parts[run.part].name;
        const std::vector<float> expected = read_floats(file, prefix + name);
        Difference& difference = differences[name];
        for (int64_t i = 0; i < run.size; ++i) {
          const double value = expected[static_cast<size_t>(run.on_disk + i)];
          const double d = double{gradient[run.in_parameter + i]} - value;
          difference.squares += d * d;
          difference.norm += value * value;
        }
      }
    }
    EXPECT_GT(differences.size(), 10u);
    for (const auto& [name, d] : differences)
      EXPECT_LT(std::sqrt(d.squares / std::max(d.norm, 1e-30)), kGradientTolerance)
          << prefix << name << " norm " << std::sqrt(d.norm);
  }

  io::HfFolder folder;
  io::SafetensorsFile file;
  model::ModelSpec spec;
  model::Decoder decoder;
  model::ParameterStore store;
  dist::Collective ranks;
  std::vector<int64_t> input_ids;
  std::vector<float> mask;
  int64_t batch = 0, length = 0;
};

}  // namespace slimexx::train
