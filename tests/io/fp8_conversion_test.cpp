// FP8 folders: rounding, scales, bytes of golden models against numpy (golden/fp8/make_fp8.py),
// interrupted conversions.
#include "slimexx/io/fp8_conversion.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "io/content_hash.h"
#include "slimexx/base/file.h"
#include "slimexx/io/lines.h"
#include "slimexx/io/tensor_list.h"
#include "temp_dir.h"
#include "test_paths.h"

namespace slimexx::io {
namespace {

using tensor::DType;
using tensor::F8ScaleRule;

std::vector<uint8_t> bytes_of(const HfFolder& folder, const std::string& name) {
  const HfFolder::Located* located = folder.find(name);
  if (located == nullptr) return {};
  const int64_t n = located->entry->num_elements();
  std::vector<uint8_t> bytes(static_cast<size_t>(n * tensor::dtype_bytes(located->entry->dtype)));
  located->file->read(*located->entry, 0, n, bytes.data());
  return bytes;
}

// The nearest finite value, found by search; of two equally near values the one with an even last
// bit.
uint8_t nearest_by_search(float x) {
  uint8_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (uint8_t bits = 0; bits < 0x7F; ++bits) {
    const double distance = std::abs(double{tensor::f8_e4m3_to_f32(bits)} - std::abs(double{x}));
    if (distance < least || (distance == least && bits % 2 == 0)) best = bits, least = distance;
  }
  return best | (std::signbit(x) ? 0x80 : 0);
}

TEST(Fp8Rounding, IsToTheNearestEven) {
  for (uint32_t bits = 0; bits < 1 << 16; ++bits) {
    const float x = tensor::bf16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(x)) {
      EXPECT_EQ(tensor::f32_to_f8_e4m3(x), tensor::kF8E4M3Nan);
    } else if (std::isinf(x)) {
      EXPECT_EQ(tensor::f32_to_f8_e4m3(x) & 0x7F, 0x7E);
    } else {
      ASSERT_EQ(tensor::f32_to_f8_e4m3(x), nearest_by_search(x)) << x;
    }
  }
  // f32 values next to the midpoint of two neighbouring FP8 values.
  for (uint8_t bits = 0; bits < 0x7E; ++bits) {
    const float middle = (tensor::f8_e4m3_to_f32(bits) + tensor::f8_e4m3_to_f32(bits + 1)) / 2;
    for (const float x : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1000.0f)})
      ASSERT_EQ(tensor::f32_to_f8_e4m3(x), nearest_by_search(x)) << x;
  }
}

TEST(Fp8Scale, PowersOfTwoAreTheLeastThatFit) {
  for (uint32_t bits = 1; bits < 0x7F80; ++bits) {
    const float amax = tensor::bf16_to_f32(static_cast<uint16_t>(bits));
    const float scale = tensor::f8_scale(amax, F8ScaleRule::kPowerOfTwo);
    int exponent = 0;
    ASSERT_EQ(std::frexp(scale, &exponent), 0.5f) << amax;
    ASSERT_LE(double{amax} / scale, 448) << amax;
    if (scale > std::numeric_limits<float>::min()) {
      ASSERT_GT(double{amax} / (double{scale} / 2), 448) << amax;
    }
  }
  EXPECT_EQ(tensor::f8_scale(0, F8ScaleRule::kPowerOfTwo), 1);
  EXPECT_EQ(tensor::f8_scale(0, F8ScaleRule::kFloat), 1e-12f / 448.0f);
  for (const F8ScaleRule rule : {F8ScaleRule::kPowerOfTwo, F8ScaleRule::kFloat})
    for (const float bad :
         {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()})
      EXPECT_TRUE(std::isnan(tensor::f8_scale(bad, rule)));
}

// A zero, a NaN or an infinity affects only its own block.
TEST(Fp8Quantiser, BlocksAreApart) {
  std::vector<float> x(4 * 6, 0.5f);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  x[3] = -std::numeric_limits<float>::infinity();
  for (const size_t i : {12, 13, 14, 18, 19, 20}) x[i] = -0.0f;
  std::vector<uint8_t> q(x.size());
  std::vector<float> scales(4);
  quantise_rows({.block_rows = 2, .block_columns = 3}, x.data(), 4, 6, 0, q.data(), scales.data());
  EXPECT_TRUE(std::isnan(scales[0]) && std::isnan(scales[1]));
  EXPECT_EQ(scales[2], 1);
  EXPECT_EQ(scales[3], 0x1p-9f);
  EXPECT_EQ(q[1], tensor::kF8E4M3Nan);
  EXPECT_EQ(q[12], 0x80);
  EXPECT_EQ(tensor::f8_e4m3_to_f32(q[15]) * scales[3], 0.5f);
}

Fp8Options options_of(const Json& golden) {
  Fp8Options options{.scale_rule = F8ScaleRule::kFloat};
  const std::string strategy = golden["strategy"];
  if (strategy == "channel") options.strategy = Fp8Strategy::kChannel;
  if (strategy == "tensor") options.strategy = Fp8Strategy::kTensor;
  if (golden["block"].is_array()) {
    options.block_rows = golden["block"][0];
    options.block_columns = golden["block"][1];
  }
  return options;
}

void convert(const HfFolder& folder, const std::string& save, const Fp8Options& options) {
  Fp8Conversion conversion(folder, save, options);
  conversion.create();
  conversion.write(0, 1, false);
  conversion.commit();
}

TEST(Fp8Conversion, HasTheBytesOfGoldenModels) {
  LineReader reader(test_data_path("golden/fp8/fp8.jsonl"));
  std::string line;
  int count = 0;
  for (; reader.next(line); ++count) {
    const Json golden = Json::parse(line);
    const HfFolder folder =
        HfFolder::open(test_data_path("golden/models/" + golden["model"].get<std::string>()));
    const TempDir dir;
    const Fp8Options options = options_of(golden);
    convert(folder, dir.file("fp8"), options);
    const HfFolder made = HfFolder::open(dir.file("fp8"));
    const std::string suffix = options.strategy == Fp8Strategy::kBlock ? "_scale_inv" : "_scale";
    ContentHash hash;
    int64_t tensors = 0, bytes = 0;
    for (const std::string& name : folder.tensor_names()) {
      const std::vector<uint8_t> values = bytes_of(made, name);
      if (made.find(name)->entry->dtype != DType::kF8E4M3) {
        EXPECT_EQ(values, bytes_of(folder, name)) << name;
        continue;
      }
      const std::vector<uint8_t> scales = bytes_of(made, name + suffix);
      hash.append(name.data(), name.size());
      hash.append(values.data(), values.size());
      hash.append(scales.data(), scales.size());
      bytes += std::ssize(values) + std::ssize(scales);
      ++tensors;
    }
    EXPECT_EQ(tensors, golden["tensors"].get<int64_t>()) << line;
    EXPECT_EQ(hash.hex(), golden["xxh3_128"].get<std::string>()) << line;
    EXPECT_GT(bytes, 0);
    EXPECT_FALSE(path_exists(dir.file("fp8/fp8_conversion.incomplete")));
  }
  EXPECT_EQ(count, 12);
}

// A folder of two shards with an index, made from a golden model.
void make_two_shards(const std::string& directory) {
  const HfFolder folder = HfFolder::open(test_data_path("golden/models/qwen3_moe_odd"));
  HfWriteOptions options;
  options.template_directory = folder.directory();
  size_t i = 0;
  for (const std::string& name : folder.tensor_names())
    options.shards[name] = i++ % 2 == 0 ? "a.safetensors" : "b.safetensors";
  write_hf_folder(directory, list_tensors(folder), options);
}

TEST(Fp8Conversion, GoesOnWhereItStopped) {
  const TempDir dir;
  make_two_shards(dir.file("model"));
  const HfFolder folder = HfFolder::open(dir.file("model"));
  convert(folder, dir.file("whole"), {});
  {
    Fp8Conversion killed(folder, dir.file("fp8"), {});
    killed.create();
    EXPECT_EQ(killed.write(0, 2, false).files, 1);
    expect_error(ErrorCode::kRun, "b.safetensors was not written completely",
                 [&] { killed.commit(); });
  }
  dir.put("fp8/b.safetensors.incomplete", "half");
  Fp8Conversion again(folder, dir.file("fp8"), {});
  again.create();
  const Fp8Summary summary = again.write(0, 1, false);
  EXPECT_EQ(summary.skipped_files, 1);
  EXPECT_EQ(summary.files, 1);
  again.commit();
  for (const char* name :
       {"a.safetensors", "b.safetensors", "config.json", "model.safetensors.index.json"})
    EXPECT_EQ(TempDir::read_bytes(dir.file(std::string("fp8/") + name)),
              TempDir::read_bytes(dir.file(std::string("whole/") + name)))
        << name;
  // total_size is that of all tensors.
  int64_t bytes = 0;
  const HfFolder made = HfFolder::open(dir.file("fp8"));
  for (const std::string& name : made.tensor_names()) bytes += std::ssize(bytes_of(made, name));
  const Json index = parse_json_file(dir.file("fp8/model.safetensors.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], bytes);
}

TEST(Fp8Conversion, Refusals) {
  const TempDir dir;
  make_two_shards(dir.file("model"));
  const HfFolder folder = HfFolder::open(dir.file("model"));
  expect_error(ErrorCode::kUsage, "is the folder that is read",
               [&] { Fp8Conversion(folder, dir.file("model"), {}).create(); });
  std::filesystem::create_directories(dir.file("used"));
  dir.put("used/notes.txt", "mine");
  expect_error(ErrorCode::kUsage, "not empty",
               [&] { Fp8Conversion(folder, dir.file("used"), {}).create(); });
  Fp8Conversion(folder, dir.file("fp8"), {}).create();
  expect_error(ErrorCode::kUsage, "unfinished conversion", [&] {
    Fp8Conversion(folder, dir.file("fp8"), {.strategy = Fp8Strategy::kChannel}).create();
  });
  convert(folder, dir.file("done"), {});
  const HfFolder done = HfFolder::open(dir.file("done"));
  expect_error(ErrorCode::kInput, "is FP8 already",
               [&] { Fp8Conversion(done, dir.file("twice"), {}); });
}

TEST(Fp8Conversion, ConfigurationSaysHow) {
  const TempDir dir;
  const HfFolder folder = HfFolder::open(test_data_path("golden/models/qwen3_odd"));
  const auto config_of = [&](const char* name, const Fp8Options& options) {
    convert(folder, dir.file(name), options);
    return parse_json_file(dir.file(std::string(name) + "/config.json"))["quantization_config"];
  };
  const Json block = config_of("block", {});
  EXPECT_EQ(block["quant_method"], "fp8");
  EXPECT_EQ(block["scale_fmt"], "ue8m0");
  EXPECT_EQ(block["weight_block_size"], Json::parse("[128, 128]"));
  const auto kept = block["modules_to_not_convert"].get<std::vector<std::string>>();
  EXPECT_TRUE(std::ranges::count(kept, "model.embed_tokens") == 1);
  EXPECT_TRUE(
      std::ranges::none_of(kept, [](const auto& name) { return name.ends_with("q_proj"); }));
  const Json channel =
      config_of("channel", {.strategy = Fp8Strategy::kChannel, .scale_rule = F8ScaleRule::kFloat});
  EXPECT_EQ(channel["quant_method"], "compressed-tensors");
  EXPECT_EQ(channel["config_groups"]["group_0"]["weights"]["strategy"], "channel");
}

}  // namespace
}  // namespace slimexx::io
