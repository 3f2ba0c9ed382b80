#include "slimexx/rl/export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "model/weights/stored_forms.h"
#include "slimexx/dist/collective.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::rl {
namespace {

// A model that was read as FP8 is exported like any other.
TEST(Export, OfAnFp8FolderIsPlain) {
  const io::TempDir dir;
  Json config = model::small_config("glm4_moe");
  model::StoredMap plain = model::make_plain(model::spec_of(config), 8);
  const model::StoredMap fp8 = model::quantise_projections(plain, {}, 9);
  config["quantization_config"] = model::fp8_config();
  const std::string folder = model::write_stored(dir, "fp8", config, fp8);
  const LoadedModel loaded = load_model(folder, {}, false, false);
  dist::Collective alone;
  export_hf(*loaded.store, loaded.layout, loaded.spec, folder, dir.file("out"), alone);
  const auto written = io::HfFolder::open(dir.file("out"));
  EXPECT_FALSE(written.config().contains("quantization_config"));
  EXPECT_EQ(written.config().at("hidden_size"), 200);
  ASSERT_EQ(written.tensor_names().size(), plain.size());
  for (const auto& [name, tensor] : plain) {
    const auto* located = written.find(name);
    ASSERT_NE(located, nullptr) << name;
    if (located->entry->dtype == tensor::DType::kF32) continue;  // correction biases
    EXPECT_EQ(located->entry->dtype, tensor::DType::kBF16) << name;
    std::string bytes(tensor.bytes.size() / 2, '\0'), wanted = bytes;
    const int64_t n = located->entry->num_elements();
    located->file->read(*located->entry, 0, n, bytes.data());
    tensor::convert_elements(tensor::DType::kF32, tensor.bytes.data(), tensor::DType::kBF16,
                             wanted.data(), n);
    EXPECT_TRUE(bytes == wanted) << name;
  }
}

TEST(Export, IsInTheDtypeOfTheWeightsWhereNoneIsNamed) {
  const io::TempDir dir;
  Json config = model::small_config("qwen3");
  const model::StoredMap map = model::make_plain(model::spec_of(config), 8);
  dist::Collective alone;
  for (const char* named : {"", "dtype", "torch_dtype"}) {
    config.erase("dtype");
    if (*named != '\0') config[named] = "bfloat16";
    const std::string name = std::string("in_") + named, out = dir.file(name + "_out");
    const std::string folder = model::write_stored(dir, name, config, map);
    const LoadedModel loaded = load_model(folder, {}, false, false);
    export_hf(*loaded.store, loaded.layout, loaded.spec, folder, out, alone);
    const auto written = io::HfFolder::open(out);
    ASSERT_EQ(written.tensor_names().size(), map.size());
    for (const auto& [tensor, stored] : map)
      EXPECT_EQ(written.find(tensor)->entry->dtype,
                *named == '\0' ? stored.dtype : tensor::DType::kBF16)
          << tensor << " " << named;
  }
}

// Tensors that no step changes keep type and bytes, whatever dtype config.json names.
TEST(Export, KeepsTheDtypesOfWhatIsNotTrained) {
  const io::TempDir dir;
  Json config = model::small_config("glm_moe_dsa");
  config["num_nextn_predict_layers"] = 1;
  config.erase("indexer_types");
  model::StoredMap map = model::make_plain(model::spec_of(config), 8);  // in f32
  const auto is_untrained = [](const std::string& name) {
    return name.find(".indexer.") != std::string::npos || name.starts_with("model.layers.2.") ||
           name.ends_with("e_score_correction_bias");
  };
  for (auto& [name, tensor] : map) {
    if (!name.ends_with("e_score_correction_bias")) continue;
    std::string rounded(tensor.bytes.size() / 2, '\0');
    tensor::convert_elements(tensor::DType::kF32, tensor.bytes.data(), tensor::DType::kBF16,
                             rounded.data(), std::ssize(rounded) / 2);
    tensor.dtype = tensor::DType::kBF16;
    tensor.bytes = rounded;
  }
  dist::Collective alone;
  for (const double bias_rate : {0.0, 0.001}) {
    const std::string name = bias_rate > 0 ? "moved" : "still", out = dir.file(name + "_out");
    const std::string folder = model::write_stored(dir, name, config, map);
    train::TrainOptions training;
    training.moe_router_bias_update_rate = bias_rate;
    const LoadedModel loaded =
        load_model(folder, {}, false, false, nullptr, {.training = &training});
    export_hf(*loaded.store, loaded.layout, loaded.spec, folder, out, alone);
    const auto written = io::HfFolder::open(out);
    ASSERT_EQ(written.tensor_names().size(), map.size());
    for (const auto& [tensor, stored] : map) {
      const auto* located = written.find(tensor);
      if (!is_untrained(tensor)) {
        EXPECT_EQ(located->entry->dtype, tensor::DType::kBF16) << tensor;
        continue;
      }
      if (bias_rate > 0 && tensor.ends_with("e_score_correction_bias") &&
          !tensor.starts_with("model.layers.2.")) {
        EXPECT_EQ(located->entry->dtype, tensor::DType::kF32) << tensor;
        continue;
      }
      ASSERT_EQ(located->entry->dtype, stored.dtype) << tensor;
      std::string bytes(stored.bytes.size(), '\0');
      located->file->read(*located->entry, 0, located->entry->num_elements(), bytes.data());
      EXPECT_TRUE(bytes == stored.bytes) << tensor;
    }
  }
}

// A folder whose weights do not match config.json is refused before memory is allocated.
TEST(DescribeModel, ComparesHeaders) {
  const io::TempDir dir;
  const Json config = model::small_config("qwen3");
  model::StoredMap map = model::make_plain(model::spec_of(config), 8);
  map.erase("model.norm.weight");
  map["one\nmore"] = model::store_floats({1}, {1});
  map[""] = model::store_floats({1}, {1});
  const float nan = NAN;
  std::memcpy(map["model.embed_tokens.weight"].bytes.data(), &nan, 4);
  const std::string folder = model::write_stored(dir, "bad", config, map);
  const std::string text = io::expect_error(ErrorCode::kInput, "3 faults in the weights",
                                            [&] { describe_model(folder); });
  for (const char* line :
       {"model.norm.weight: missing", "\"one\\nmore\": not a tensor", "\"\": not a tensor"})
    EXPECT_NE(text.find(line), std::string::npos) << line << " in " << text;
}

// Differences between the folder and config.json, or a later export, are logged.
TEST(LoadModel, SaysWhatDeviates) {
  const io::TempDir dir;
  Json config = model::small_config("glm4_moe");
  config["num_nextn_predict_layers"] = 1;
  config["eos_token_id"] = {2, 1 << 20};
  model::StoredMap map = model::make_plain(model::spec_of(config), 8);
  model::StoredBytes& norm = map["model.norm.weight"];
  norm = {tensor::DType::kF64, norm.shape, std::string(norm.bytes.size() * 2, '\0')};
  config["num_nextn_predict_layers"] = 3;
  const std::string folder = model::write_stored(dir, "odd", config, map);
  train::TrainOptions training;
  training.freeze_params_name_list = {"model.norm"};
  testing::internal::CaptureStderr();
  load_model(folder, {}, false, false, nullptr, {.training = &training});
  const std::string log = testing::internal::GetCapturedStderr();
  for (const std::string& line :
       {folder + "/config.json: \"eos_token_id\" holds 1048576, but the vocabulary has",
        std::string("config.json names 3 MTP layers, but the weights in "),
        std::string("weights that are not trained are rounded to F32, the compute dtype, and "
                    "exported with the rounded values: model.norm.weight")})
    EXPECT_NE(log.find(line), std::string::npos) << line << " in " << log;
}

TEST(DescribeModel, ComparesATiedHead) {
  const io::TempDir dir;
  Json config = model::small_config("qwen3");
  config["tie_word_embeddings"] = true;
  model::StoredMap map = model::make_plain(model::spec_of(config), 8);
  map["lm_head.weight"] = model::store_floats({1, 2}, {1, 1});
  const std::string folder = model::write_stored(dir, "bad", config, map);
  io::expect_error(ErrorCode::kInput, "tie_word_embeddings is true, but this tensor differs",
                   [&] { describe_model(folder); });
}

}  // namespace
}  // namespace slimexx::rl
