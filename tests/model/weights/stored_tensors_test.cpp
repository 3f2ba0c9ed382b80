// Tests forms of checkpoints other than plain per-expert tensors: they load the same bits as the
// plain form.
#include <gtest/gtest.h>

#include <cstring>

#include "model/weights/stored_forms.h"
#include "model/weights/stored_tensors.h"
#include "slimexx/dist/thread_ranks.h"
#include "slimexx/model/load_hf.h"

namespace slimexx::model {
namespace {

using tensor::DType;

// A folder in FP8, and the same weights in plain F32.
struct Fp8Pair {
  Fp8Pair(const std::string& family, const Fp8Form& form, const Json& quantization)
      : config(small_config(family)), plain(make_plain(spec_of(config), 3)) {
    fp8 = quantise_projections(plain, form, 4);
    fp8_config = config;
    fp8_config["quantization_config"] = quantization;
    plain_folder = write_stored(dir, "plain", config, plain);
    fp8_folder = write_stored(dir, "fp8", fp8_config, fp8);
  }
  // Loads a changed FP8 folder; returns the error, which must contain `words`.
  std::string refuse(const StoredMap& map, const std::string& words) {
    return refuse(map, words, fp8_config);
  }
  std::string refuse(const StoredMap& map, const std::string& words, const Json& changed) {
    const std::string folder = write_stored(dir, "bad" + std::to_string(++num_bad), changed, map);
    return io::expect_error(ErrorCode::kInput, words, [&] { load_values(folder, config); });
  }
  io::TempDir dir;
  Json config, fp8_config;
  StoredMap plain, fp8;
  std::string plain_folder, fp8_folder;
  int num_bad = 0;
};

// Thread ranks share the list that one of them makes, and that rank may finish before the others.
TEST(StoredTensors, KeepTheirFilesOpen) {
  const io::TempDir dir;
  const Json config = small_config("qwen3_moe");
  const StoredMap plain = make_plain(spec_of(config), 3);
  const std::string path = write_stored(dir, "plain", config, plain);
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight";
  const StoredTensors stored(io::HfFolder::open(path), {{name, plain.at(name).shape}});
  const StoredTensor& tensor = stored.find(name);
  EXPECT_EQ(tensor.located.file->path(), path + "/model.safetensors");
  float value = 0, wanted = 0;
  tensor.read(0, 1, &value);
  std::memcpy(&wanted, plain.at(name).bytes.data(), sizeof(wanted));
  EXPECT_EQ(value, wanted);
}

TEST(Fp8, BlocksOfEveryFamily) {
  for (const char* family : {"qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3", "qwen3"}) {
    const Fp8Pair pair(family, {}, fp8_config());
    EXPECT_EQ(load_values(pair.fp8_folder, pair.fp8_config),
              load_values(pair.plain_folder, pair.config))
        << family;
  }
}

TEST(Fp8, FormsOfCompressedTensors) {
  const std::vector<std::pair<std::string, Fp8Form>> forms = {
      {"channel", {1, 0, "_scale", DType::kBF16}},
      {"channel", {1, 0, "_scale", DType::kF32}},
      {"tensor", {0, 0, "_scale", DType::kF32}},
      {"block", {128, 64, "_scale", DType::kF32}}};
  for (const auto& [strategy, form] : forms) {
    const Fp8Pair pair("glm4_moe", form, compressed_config(strategy));
    EXPECT_EQ(load_values(pair.fp8_folder, pair.fp8_config),
              load_values(pair.plain_folder, pair.config))
        << strategy;
  }
}

TEST(Fp8, ScalesMayLackDimensionsOfOne) {
  for (const char* strategy : {"channel", "tensor"}) {
    const bool is_channel = std::string_view(strategy) == "channel";
    Fp8Pair pair("qwen3_moe", {is_channel ? 1 : 0, 0, "_scale", DType::kBF16},
                 compressed_config(strategy));
    for (auto& [name, tensor] : pair.fp8)
      if (name.ends_with("_scale")) tensor.shape.resize(is_channel ? 1 : 0);
    EXPECT_EQ(load_values(write_stored(pair.dir, "flat", pair.fp8_config, pair.fp8), pair.config),
              load_values(pair.plain_folder, pair.config))
        << strategy;
  }
}

// Tests shards that begin and end inside blocks of scales, read by one rank or shared among the
// ranks of a host.
TEST(Fp8, RanksReadTheScalesOfTheirShards) {
  constexpr int kShardRanks = 8;
  for (const char* family : {"qwen3_moe", "deepseek_v3"}) {
    const Fp8Pair pair(family, {}, fp8_config());
    const ModelSpec spec = spec_of(pair.fp8_config);
    for (const dist::GridSizes& sizes :
         {dist::GridSizes{.tp = 2, .ep = 2, .etp = 2}, dist::GridSizes{.ep = 4}}) {
      const Layout layout =
          make_layout({list_parameters(spec)}, dist::GridShape(kShardRanks, sizes));
      dist::run_thread_ranks(kShardRanks, [&](dist::Collective& world) {
        const auto& infos = *layout.ranks[static_cast<size_t>(world.rank())];
        const auto wanted = load_values(pair.plain_folder, spec, infos, &layout);
        EXPECT_EQ(load_values(pair.fp8_folder, spec, infos, &layout), wanted) << family;
        ParameterStore store(infos, {}, false);
        load_hf_weights(store, spec, io::HfFolder::open(pair.fp8_folder), {}, &layout,
                        HostRanks{world, layout});
        size_t at = 0;
        for (const ParameterInfo& info : store.infos()) {
          std::vector<float> values(static_cast<size_t>(info.num_elements()));
          store.read_weights(info, 0, values.data(), info.num_elements());
          for (const float value : values) ASSERT_EQ(value, wanted[at++]) << info.name;
        }
      });
    }
  }
}

TEST(Fp8, SaysWhatIsDequantised) {
  const Fp8Pair pair("qwen3_moe", {}, fp8_config());
  ::testing::internal::CaptureStderr();
  load_values(pair.fp8_folder, pair.fp8_config);
  const std::string line = ::testing::internal::GetCapturedStderr();
  // Two layers, each with four attention projections and three projections for each of eight
  // experts.
  const std::string words = "FP8 weights (e4m3, one scale per block of 128x128): 56 of " +
                            std::to_string(pair.plain.size()) +
                            " tensors are dequantised on load; exports are written as BF16 without "
                            "quantization_config";
  EXPECT_NE(line.find(words), std::string::npos) << line;
  ::testing::internal::CaptureStderr();
  load_values(write_stored(pair.dir, "stale", pair.fp8_config, pair.plain), pair.fp8_config);
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("no tensor is FP8"), std::string::npos);
}

TEST(Fp8, Faults) {
  Fp8Pair pair("qwen3_moe", {}, fp8_config());
  const std::string name = "model.layers.1.mlp.experts.3.up_proj.weight";
  const std::string scale_name = name + "_scale_inv";
  StoredMap bad = pair.fp8;
  for (const char nan : {'\x7f', '\xff'}) {
    bad[name].bytes[201] = nan;
    pair.refuse(bad, name + ": 1 value is NaN or infinite, first at element 201, in");
  }
  bad = pair.fp8;
  bad[scale_name] = store_floats({1, 2}, {1, INFINITY});
  pair.refuse(bad, name + ": 5184 values are NaN or infinite, first at element 128");
  bad = pair.fp8;
  bad.erase(scale_name);
  pair.refuse(bad, scale_name + ": missing, but " + name + " is FP8");
  bad[scale_name] = store_floats({2, 1}, {1, 1});
  pair.refuse(bad, scale_name + ": shape [2, 1] in ");
  pair.refuse(bad, "expected [1, 2]: one scale per block of 128x128 of [72, 200]");
  bad[scale_name] = {DType::kI32, {1, 2}, std::string(8, '\0')};
  pair.refuse(bad, scale_name + ": dtype I32 cannot be loaded as scales");
  bad = pair.fp8;
  bad[name] = pair.plain.at(name);
  pair.refuse(bad, scale_name + ": scales of " + name + ", which is F32, not FP8");
  bad = pair.fp8;
  bad[name + "_scale"] = bad.at(scale_name);
  pair.refuse(bad, name + "_scale: scales of a form that differs");
  bad = pair.fp8;
  bad["model.x.weight_scale_inv"] = bad.at(scale_name);
  pair.refuse(bad, "model.x.weight_scale_inv: not a tensor of this model");
  bad = pair.fp8;
  bad["model.norm.weight"] = {DType::kF8E4M3, {200}, std::string(200, '\0')};
  pair.refuse(bad, "model.norm.weight: FP8 is supported for matrices only");
  bad = pair.fp8;
  bad[name].dtype = DType::kF8E5M2;
  pair.refuse(bad, name + ": dtype F8_E5M2 cannot be loaded as a dense weight");
  pair.refuse(pair.fp8, "config.json has no quantization_config", pair.config);
  Json int8 = pair.fp8_config;
  int8["quantization_config"] = {{"quant_method", "gptq"}};
  pair.refuse(pair.fp8, "the weights are quantised (gptq)", int8);
}

TEST(StackedExperts, LoadAsOneByOne) {
  const io::TempDir dir;
  for (const std::string family : {"qwen3_moe", "glm4_moe", "glm4_moe_lite", "deepseek_v3"}) {
    const Json config = small_config(family);
    const ModelSpec spec = spec_of(config);
    const StoredMap per_expert = make_plain(spec, 5), stacked = stack_experts(per_expert);
    EXPECT_EQ(stacked.at("model.layers.1.mlp.experts.gate_up_proj").shape,
              (std::vector<int64_t>{8, 144, 200}));
    const std::string a = write_stored(dir, family, config, per_expert);
    const std::string b = write_stored(dir, family + "_stacked", config, stacked);
    EXPECT_EQ(load_values(b, config), load_values(a, config)) << family;
    const Layout layout =
        make_layout({list_parameters(spec)}, dist::GridShape(4, {.tp = 2, .ep = 2, .etp = 2}));
    for (const auto& infos : layout.ranks)
      EXPECT_EQ(load_values(b, spec, *infos, &layout), load_values(a, spec, *infos, &layout));
  }
}

// 72 gate rows, then 72 up rows, which begin inside a block of scales.
TEST(StackedExperts, InFp8) {
  const io::TempDir dir;
  Json config = small_config("glm4_moe");
  const ModelSpec spec = spec_of(config);
  StoredMap plain = make_plain(spec, 5);
  // Quantises gate and up of each expert as one matrix, and splits them for the plain folder.
  StoredMap joined;
  for (const auto& [name, tensor] : plain) {
    const bool is_expert = name.find(".experts.") != std::string::npos;
    if (is_expert && name.ends_with("up_proj.weight")) continue;
    if (!is_expert || !name.ends_with("gate_proj.weight")) {
      joined[name] = tensor;
      continue;
    }
    const std::string base = name.substr(0, name.size() - std::string("gate_proj.weight").size());
    const StoredBytes& up = plain.at(base + "up_proj.weight");
    joined[base + "gate_up_proj.weight"] = {tensor.dtype, {144, 200}, tensor.bytes + up.bytes};
  }
  const StoredMap fp8 = quantise_projections(joined, {}, 6);
  for (const auto& [name, tensor] : joined) {
    const auto at = name.find(".gate_up_proj");
    if (at == std::string::npos) {
      plain[name] = tensor;
      continue;
    }
    const std::string base = name.substr(0, at);
    const size_t half = tensor.bytes.size() / 2;
    plain[base + ".gate_proj.weight"].bytes = tensor.bytes.substr(0, half);
    plain[base + ".up_proj.weight"].bytes = tensor.bytes.substr(half);
  }
  StoredMap stacked;
  for (const auto& [name, tensor] : fp8) {
    const auto at = name.find(".experts.");
    if (at == std::string::npos) {
      stacked[name] = tensor;
      continue;
    }
    const auto dot = name.find('.', at + 9);  // after the expert's number
    const auto weight = name.find(".weight");
    StoredBytes& out = stacked[name.substr(0, at + 9) + name.substr(dot + 1, weight - dot - 1) +
                               name.substr(weight + 7)];
    out.dtype = tensor.dtype;
    out.shape = {8, tensor.shape[0], tensor.shape[1]};
    out.bytes += tensor.bytes;  // eight experts, whose names sort by number
  }
  Json quantised = config;
  quantised["quantization_config"] = fp8_config();
  const std::string a = write_stored(dir, "plain", config, plain);
  const std::string b = write_stored(dir, "stacked", quantised, stacked);
  EXPECT_EQ(load_values(b, quantised), load_values(a, config));
}

TEST(StackedExperts, Faults) {
  const io::TempDir dir;
  const Json config = small_config("qwen3_moe");
  const StoredMap per_expert = make_plain(spec_of(config), 5), stacked = stack_experts(per_expert);
  const std::string name = "model.layers.1.mlp.experts.gate_up_proj";
  int num_bad = 0;
  const auto refuse = [&](const StoredMap& map, const std::string& words) {
    const std::string folder = write_stored(dir, std::to_string(++num_bad), config, map);
    return io::expect_error(ErrorCode::kInput, words, [&] { load_values(folder, config); });
  };
  StoredMap bad = stacked;
  bad[name].shape = {8, 200, 144};  // stored the other way round
  const std::string text = refuse(bad, name + ": shape [8, 200, 144] in ");
  EXPECT_NE(text.find("1 fault in the weights"), std::string::npos) << text;
  EXPECT_NE(text.find("config.json needs [8, 144, 200]"), std::string::npos) << text;
  bad = stacked;
  bad.erase(name);
  refuse(bad, "model.layers.1.mlp.experts.0.gate_proj.weight: missing");
  bad = per_expert;
  bad[name] = stacked.at(name);
  refuse(bad, name + ": not a tensor of this model");
  bad = stacked;
  const float nan = NAN;
  // Expert 3, row 2 of the up projection, column 7.
  const size_t at = static_cast<size_t>((3 * 144 + 72 + 2) * 200 + 7);
  std::memcpy(bad[name].bytes.data() + at * 4, &nan, 4);
  refuse(bad,
         "model.layers.1.mlp.experts.3.up_proj.weight: 1 value is NaN or infinite, first at "
         "element 407, in ");
}

// transformers writes empty tensors if there are no shared experts.
TEST(SharedExperts, MayBeEmpty) {
  const io::TempDir dir;
  Json config = small_config("glm4_moe");
  config["n_shared_experts"] = 0;
  StoredMap map = make_plain(spec_of(config), 3);
  const std::string plain = write_stored(dir, "plain", config, map);
  const std::string shared = "model.layers.1.mlp.shared_experts.";
  map[shared + "up_proj.weight"] = store_floats({0, 200}, {});
  map[shared + "down_proj.weight"] = store_floats({200, 0}, {});
  EXPECT_EQ(load_values(write_stored(dir, "empty", config, map), config),
            load_values(plain, config));
  map[shared + "down_proj.weight"] = store_floats({200, 1}, std::vector<float>(200));
  const std::string bad = write_stored(dir, "bad", config, map);
  io::expect_error(ErrorCode::kInput, shared + "down_proj.weight: not a tensor of this model",
                   [&] { load_values(bad, config); });
}

// A layer beyond those in config.json gives one fault, which says what kind of layer it looks like.
TEST(LayerBehindTheLast, IsOneFault) {
  const io::TempDir dir;
  Json config = small_config("glm4_moe");
  config["num_nextn_predict_layers"] = 1;
  StoredMap map = make_plain(spec_of(config), 7);
  config.erase("num_nextn_predict_layers");
  const auto refuse = [&](const std::string& name, const std::string& words) {
    const std::string folder = write_stored(dir, name, config, map);
    const std::string text =
        io::expect_error(ErrorCode::kInput, words, [&] { load_values(folder, config); });
    EXPECT_NE(text.find("1 fault in the weights"), std::string::npos) << text;
    EXPECT_NE(text.find("model.layers.2.*: "), std::string::npos) << text;
  };
  refuse("uncounted", "this is an MTP layer, but config.json has num_nextn_predict_layers 0");
  map.erase("model.layers.2.eh_proj.weight");
  refuse("no_input", "model.layers.2.eh_proj.weight");
}

// The folder has only the second of two MTP layers.
TEST(LayerBehindTheLast, MayBeAnMtpLayerBehindOneThatIsMissing) {
  const io::TempDir dir;
  Json config = small_config("glm4_moe");
  config["num_nextn_predict_layers"] = 2;
  StoredMap map = make_plain(spec_of(config), 7);
  std::erase_if(map, [](const auto& entry) { return entry.first.starts_with("model.layers.2."); });
  const std::string path = write_stored(dir, "second", config, map);
  const auto folder = io::HfFolder::open(path);
  ModelSpec spec = spec_of(config);
  drop_missing_mtp(spec, folder);
  EXPECT_EQ(spec.mtp.size(), 0u);
  EXPECT_EQ(spec.num_missing_mtp, 2);
  ParameterStore store(spec, {}, false);
  const std::string text =
      io::expect_error(ErrorCode::kInput, "this is an MTP layer, but model.layers.",
                       [&] { load_hf_weights(store, spec, folder); });
  EXPECT_NE(text.find("model.layers.2.eh_proj.weight"), std::string::npos) << text;
  EXPECT_NE(text.find("num_nextn_predict_layers 2"), std::string::npos) << text;
}

// GLM-4.6 stores its MTP layers in a separate file.
TEST(MtpFile, LiesBesideTheOtherShards) {
  Json config = small_config("glm4_moe");
  config["num_nextn_predict_layers"] = 1;
  const ModelSpec spec = spec_of(config);
  ASSERT_EQ(spec.mtp.size(), 1u);
  const StoredMap all = make_plain(spec, 7);
  StoredMap model, mtp;
  for (const auto& [name, tensor] : all)
    (name.starts_with("model.layers.2.") ? mtp : model)[name] = tensor;
  ASSERT_TRUE(mtp.contains("model.layers.2.eh_proj.weight"));
  const io::TempDir dir;
  const auto wanted = load_values(write_stored(dir, "all", config, all), config);
  const auto expect_loads = [&](const std::string& folder) {
    ModelSpec found = spec;
    drop_missing_mtp(found, io::HfFolder::open(folder));
    EXPECT_EQ(found.mtp.size(), 1u) << folder;
    EXPECT_EQ(load_values(folder, config), wanted) << folder;
  };
  const auto single = write_stored(dir, "single", config, model);
  write_stored_file(single + "/mtp.safetensors", mtp);
  expect_loads(single);
  for (const bool is_listed : {true, false}) {
    const auto folder = write_stored(dir, is_listed ? "listed" : "unlisted", config, {});
    std::filesystem::remove(folder + "/model.safetensors");
    write_stored_file(folder + "/model-00001-of-00001.safetensors", model);
    write_stored_file(folder + "/mtp.safetensors", mtp);
    Json map = Json::object();
    for (const auto& [name, tensor] : model) map[name] = "model-00001-of-00001.safetensors";
    for (const auto& [name, tensor] : mtp)
      if (is_listed) map[name] = "mtp.safetensors";
    io::TempDir::write_bytes(folder + "/model.safetensors.index.json",
                             Json{{"metadata", Json::object()}, {"weight_map", map}}.dump());
    expect_loads(folder);
    std::filesystem::remove(folder + "/model.safetensors.index.json");
    expect_loads(folder);
  }
}

}  // namespace
}  // namespace slimexx::model
