#include "slimexx/rl/export.h"

#include <gtest/gtest.h>

#include "model/stored_forms.h"
#include "slimexx/dist/collective.h"
#include "slimexx/rl/loaded_model.h"

namespace slimexx::rl {
namespace {

// A model that was read as FP8 is written as any other one is.
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

}  // namespace
}  // namespace slimexx::rl
