#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "io/shard_names.h"
#include "run_binary.h"
#include "slimexx/io/checkpoint.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::cli {
namespace {

using tensor::DType;

struct Made {
  std::string name;
  DType dtype;
  std::vector<int64_t> shape;
};

// Bytes that differ between tensors and include NaN patterns.
std::string bytes_of(const Made& t) {
  int64_t n = tensor::dtype_bytes(t.dtype);
  for (const int64_t d : t.shape) n *= d;
  std::string bytes(static_cast<size_t>(n), '\0');
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(t.dtype == DType::kBool ? i % 2 : i * 37 + t.name.size() * 11);
  }
  return bytes;
}

void write_shard_file(const std::string& path, const std::vector<Made>& tensors) {
  std::vector<io::TensorEntry> entries;
  for (const Made& t : tensors) entries.push_back({t.name, t.dtype, t.shape});
  io::SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const Made& t : tensors) {
    const std::string bytes = bytes_of(t);
    writer.write(bytes.data(), bytes.size());
  }
  writer.finish();
}

// A folder with an unknown architecture: two shards, many dtypes.
void make_foreign_folder(const Folder& folder) {
  const std::vector<Made> first = {{"a.weight", DType::kBF16, {7, 5}},
                                   {"a.weight_scale", DType::kF32, {}},
                                   {"b.experts", DType::kF8E4M3, {2, 3, 4}}};
  const std::vector<Made> second = {{"c.empty", DType::kF16, {0, 4}},
                                    {"c.ids", DType::kI64, {9}},
                                    {"c.mask", DType::kBool, {5}},
                                    {"d.weight", DType::kBF16, {33}}};
  std::filesystem::create_directories(folder / "src");
  write_shard_file(folder / "src/part-1.safetensors", first);
  write_shard_file(folder / "src/part-2.safetensors", second);
  Json map = Json::object();
  for (const Made& t : first) map[t.name] = "part-1.safetensors";
  for (const Made& t : second) map[t.name] = "part-2.safetensors";
  folder.put(
      "src/model.safetensors.index.json",
      Json{{"metadata", {{"total_size", 98 + 72 + 5 + 66 - 28 + 4 + 24}}}, {"weight_map", map}}
          .dump());
  folder.put("src/config.json",
             "{\"architectures\":[\"Unheard\"],\"dtype\":\"bfloat16\","
             "\"quantization_config\":{\"quant_method\":\"fp8\"}}\n");
  folder.put("src/tokenizer.json", "{\"kept\": \"as it is\"}");
}

// Expects the same tensors in the same files with the same bytes.
void expect_same_tensors(const std::string& a, const std::string& b) {
  const auto x = io::HfFolder::open(a), y = io::HfFolder::open(b);
  EXPECT_EQ(x.tensor_names(), y.tensor_names());
  EXPECT_EQ(shard_names(x), shard_names(y));
  for (const std::string& name : x.tensor_names()) {
    const auto *p = x.find(name), *q = y.find(name);
    ASSERT_NE(q, nullptr) << name;
    EXPECT_EQ(p->entry->dtype, q->entry->dtype) << name;
    EXPECT_EQ(p->entry->shape, q->entry->shape) << name;
    EXPECT_EQ(std::filesystem::path(p->file->path()).filename(),
              std::filesystem::path(q->file->path()).filename())
        << name;
    const auto bytes = static_cast<size_t>(p->entry->end - p->entry->begin);
    std::string u(bytes, '\1'), v(bytes, '\2');
    p->file->read(*p->entry, 0, p->entry->num_elements(), u.data());
    q->file->read(*q->entry, 0, q->entry->num_elements(), v.data());
    EXPECT_EQ(u, v) << name;
  }
}

TEST(ConvertHf, RoundTripOfAForeignFolderKeepsEveryByte) {
  const Folder folder;
  make_foreign_folder(folder);
  Finished f = run_slimexx(
      {"convert-hf", "--hf-checkpoint", folder / "src", "--save", folder / "sharded", "--verify"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("7 tensors are bit-identical"), std::string::npos) << f.out;
  EXPECT_NE(f.out.find("b.experts"), std::string::npos);
  f = run_slimexx({"convert-hf", "--to", "hf", "--load", folder / "sharded", "--save",
                   folder / "back", "--verify"});
  ASSERT_EQ(f.status, 0) << f.err;
  expect_same_tensors(folder / "src", folder / "back");
  for (const char* name : {"config.json", "tokenizer.json"}) {
    EXPECT_EQ(read_bytes(folder / ("src/" + std::string(name))),
              read_bytes(folder / ("back/" + std::string(name))));
  }
}

TEST(ConvertHf, RoundTripOfAModelKeepsItsFile) {
  const Folder folder;
  ASSERT_EQ(run_slimexx({"convert-hf", "--hf-checkpoint", golden_model("llama"), "--save",
                         folder / "sharded"})
                .status,
            0);
  ASSERT_EQ(run_slimexx({"convert-hf", "--to", "hf", "--load", folder / "sharded", "--save",
                         folder / "back"})
                .status,
            0);
  expect_same_tensors(golden_model("llama"), folder / "back");
}

// The written folder loads again, and several ranks write its files together.
TEST(ConvertHf, Fp8FoldersLoad) {
  const Folder folder;
  const std::string model = golden_model("qwen3_moe_odd");
  for (const char* strategy : {"block", "channel", "tensor"}) {
    const std::string save = folder / strategy;
    Finished f = run_slimexx({"convert-hf", "--to", "fp8", "--strategy", strategy,
                              "--hf-checkpoint", model, "--save", save});
    ASSERT_EQ(f.status, 0) << f.err;
    EXPECT_NE(f.err.find("51 tensors in FP8"), std::string::npos) << f.err;
    f = run_slimexx(
        {"convert-hf", "--hf-checkpoint", save, "--save", save + "-sharded", "--verify"});
    EXPECT_EQ(f.status, 0) << f.err;
    f = run_slimexx({"score", "--hf-checkpoint", save, "--input",
                     folder.put("tokens.jsonl", "{\"tokens\": [1, 2, 3, 4]}\n")});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_NE(f.err.find("are dequantised on load"), std::string::npos) << f.err;
    f = run_slimexx({"convert-hf", "--to", "fp8", "--hf-checkpoint", model, "--save", save});
    EXPECT_EQ(f.status, 2);
    EXPECT_NE(f.err.find("not empty"), std::string::npos) << f.err;
  }
}

// A checkpoint as in training: f32 masters split over two ranks, and moments, which an export
// omits.
void make_training_checkpoint(const std::string& directory, const std::vector<float>& values) {
  const auto n = static_cast<int64_t>(values.size());
  const std::vector<io::CheckpointTensor> tensors = {{"master", "w", DType::kF32, {n}},
                                                     {"exp_avg", "w", DType::kF32, {n}}};
  std::vector<io::ShardInfo> shards;
  for (int rank = 0; rank < 2; ++rank) {
    const int64_t begin = rank * n / 2, end = (rank + 1) * n / 2;
    const std::vector<io::CheckpointPiece> pieces = {
        {"master", "w", begin, end, values.data() + begin},
        {"exp_avg", "w", begin, end, values.data() + begin}};
    shards.push_back(io::write_shard(directory, rank, 2, tensors, pieces));
  }
  io::write_manifest(directory, shards, Json{{"next_rollout", 1}});
}

TEST(ConvertHf, MastersAreCastToTheDtypeOfTheConfig) {
  const Folder folder;
  const std::vector<float> values = {1.0f, 1.00390625f, -3.3333333f, 65504.0f, 1e-30f, 0.1f, -0.0f};
  // The run started from an FP8 model; the trained weights are not FP8.
  folder.put("run/step_000001/config.json",
             R"({"torch_dtype": "bfloat16", "quantization_config": {"quant_method": "fp8"}})");
  make_training_checkpoint(folder / "run/step_000001", values);
  const Finished f = run_slimexx(
      {"convert-hf", "--to", "hf", "--load", folder / "run", "--save", folder / "out", "--verify"});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(io::HfFolder::open(folder / "out").config(), (Json{{"torch_dtype", "bfloat16"}}));
  const io::SafetensorsFile file(folder / "out/model.safetensors");
  ASSERT_EQ(file.entries().size(), 1u);
  ASSERT_EQ(file.entries()[0].dtype, DType::kBF16);
  std::vector<uint16_t> written(values.size());
  file.read(file.entries()[0], 0, std::ssize(values), written.data());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(written[i], tensor::f32_to_bf16(values[i])) << values[i];
  }
}

// A checkpoint stores untrained tensors next to the master weights, in the dtype of the training
// forward.
TEST(ConvertHf, WhatWasNotTrainedIsCastToo) {
  const Folder folder;
  const std::string directory = folder / "run/step_000001";
  folder.put("run/step_000001/config.json", R"({"dtype": "bfloat16"})");
  const std::vector<float> values = {1.0f, 0.1f, -3.3333333f};
  const std::string bias = "mlp.gate.e_score_correction_bias";
  std::vector<io::CheckpointTensor> tensors = {
      {"master", "w", DType::kF32, {3}},
      {"weights", "old", DType::kF32, {3}},
      {"weights", bias, DType::kF32, {3}},
      {"master", "trained", DType::kF32, {3}, DType::kF16},
      {"weights", "kept", DType::kF32, {3}, DType::kF32},
      {"weights", "narrow", DType::kF32, {3}, DType::kBF16}};
  std::vector<io::CheckpointPiece> pieces;
  for (const auto& t : tensors) pieces.push_back({t.section, t.name, 0, 3, values.data()});
  const io::ShardInfo shard = io::write_shard(directory, 0, 1, tensors, pieces);
  io::write_manifest(directory, {io::shard_from_json(io::shard_to_json(shard))}, Json::object());
  const Finished f = run_slimexx(
      {"convert-hf", "--to", "hf", "--load", folder / "run", "--save", folder / "out", "--verify"});
  ASSERT_EQ(f.status, 0) << f.err;
  const io::SafetensorsFile file(folder / "out/model.safetensors");
  const std::map<std::string, DType> wanted = {{"w", DType::kBF16},   {"old", DType::kBF16},
                                               {bias, DType::kF32},   {"trained", DType::kF16},
                                               {"kept", DType::kF32}, {"narrow", DType::kBF16}};
  for (const auto& [name, dtype] : wanted) {
    const io::TensorEntry* entry = file.find(name);
    ASSERT_NE(entry, nullptr) << name;
    EXPECT_EQ(entry->dtype, dtype) << name;
    std::string bytes(static_cast<size_t>(3 * tensor::dtype_bytes(dtype)), '\0'), expected = bytes;
    file.read(*entry, 0, 3, bytes.data());
    tensor::convert_elements(DType::kF32, values.data(), dtype, expected.data(), 3);
    EXPECT_TRUE(bytes == expected) << name;
  }
}

void flip_last_byte(const std::string& path) {
  std::string bytes = read_bytes(path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  std::filesystem::resize_file(path, 0);
  FILE* file = std::fopen(path.c_str(), "wb");
  std::fwrite(bytes.data(), 1, bytes.size(), file);
  std::fclose(file);
}

TEST(ConvertHf, VerifyFindsADifference) {
  const Folder folder;
  const std::vector<std::string> to_sharded = {"convert-hf",          "--hf-checkpoint",
                                               golden_model("llama"), "--save",
                                               folder / "sharded",    "--verify"};
  const std::vector<std::string> to_hf = {
      "convert-hf", "--to",          "hf",      "--load", folder / "sharded",
      "--save",     folder / "back", "--verify"};
  ASSERT_EQ(run_slimexx(to_sharded).status, 0);
  ASSERT_EQ(run_slimexx(to_hf).status, 0);
  EXPECT_EQ(run_slimexx(to_hf).status, 0);  // verified again, nothing written
  flip_last_byte(folder / "back/model.safetensors");
  const Finished f = run_slimexx(to_hf);
  EXPECT_EQ(f.status, 5) << f.err;
  EXPECT_NE(f.err.find("1 of "), std::string::npos) << f.err;
  EXPECT_NE(f.out.find("e-"), std::string::npos) << "no max|d| in the table:\n" << f.out;
  flip_last_byte(folder / "sharded/shard-00000-of-00001.safetensors");
  EXPECT_EQ(run_slimexx(to_sharded).status, 5);
  EXPECT_EQ(run_slimexx({"convert-hf", "--to", "hf", "--load", folder / "sharded", "--save",
                         folder / "other"})
                .status,
            2)
      << "a damaged checkpoint was converted";
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

TEST(ConvertHf, AFolderWithFilesIsNotWrittenTo) {
  const Folder folder;
  const std::string kept = folder.put("target/notes.txt", "mine");
  const Finished f = run_slimexx(
      {"convert-hf", "--hf-checkpoint", golden_model("llama"), "--save", folder / "target"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("not empty"), std::string::npos) << f.err;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder / "target"), {}), 1);
  EXPECT_EQ(read_bytes(kept), "mine");
}

}  // namespace
}  // namespace slimexx::cli
