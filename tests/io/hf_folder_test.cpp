#include "slimexx/io/hf_folder.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "io/folder_files.h"
#include "io/shard_names.h"
#include "io/temp_dir.h"

namespace slimexx::io {
namespace {

using tensor::DType;
using Floats = std::vector<float>;

void write_floats(const std::string& path, const std::map<std::string, Floats>& tensors) {
  std::vector<TensorEntry> entries;
  for (const auto& [name, values] : tensors)
    entries.push_back({name, DType::kF32, {int64_t(values.size())}});
  SafetensorsWriter writer(path, entries, {{"format", "pt"}});
  for (const auto& [name, values] : tensors) writer.write(values.data(), values.size() * 4);
  writer.finish();
}

Floats read_floats(const HfFolder& folder, const std::string& name) {
  const auto* located = folder.find(name);
  if (!located) return {};
  Floats values(size_t(located->entry->num_elements()));
  located->file->read(*located->entry, 0, int64_t(values.size()), values.data());
  return values;
}

std::string index_text(const std::map<std::string, std::string>& map) {
  return Json{{"metadata", {{"total_size", 16}}}, {"weight_map", map}}.dump();
}

// A sharded folder: a, b in the first file and c in the second.
struct ShardedFolder {
  TempDir dir;
  ShardedFolder() {
    dir.put("config.json", R"({"eos_token_id": 7, "hidden_size": 4})");
    write_floats(dir.file("m1.safetensors"), {{"a", {1}}, {"b", {2, 3}}});
    write_floats(dir.file("m2.safetensors"), {{"c", {4}}});
    put_index({{"a", "m1.safetensors"}, {"b", "m1.safetensors"}, {"c", "m2.safetensors"}});
  }
  void put_index(const std::map<std::string, std::string>& map) const {
    dir.put(kHfIndexName, index_text(map));
  }
  std::string expect_refused(const char* text) const {
    return expect_error(ErrorCode::kInput, text, [&] { HfFolder::open(dir.path()); });
  }
};

TEST(HfFolder, SingleFile) {
  const TempDir dir;
  dir.put("config.json", "{\"model_type\": \"x\"}");
  write_floats(dir.file("model.safetensors"), {{"w", {1, 2}}});
  write_floats(dir.file("consolidated.safetensors"), {{"other", {1}}});
  const HfFolder folder = HfFolder::open(dir.path());
  EXPECT_EQ(folder.tensor_names(), std::vector<std::string>{"w"});
  EXPECT_EQ(shard_names(folder), std::vector<std::string>{"model.safetensors"});
  EXPECT_EQ(folder.config()["model_type"], "x");
  EXPECT_EQ(read_floats(folder, "w"), (Floats{1, 2}));
  EXPECT_EQ(folder.find("other"), nullptr);
  EXPECT_TRUE(folder.eos_token_ids().empty());
}

TEST(HfFolder, ShardsWithIndex) {
  const ShardedFolder f;
  write_floats(f.dir.file("unlisted.safetensors"), {{"d", {9}}});
  const HfFolder folder = HfFolder::open(f.dir.path());
  EXPECT_EQ(folder.tensor_names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(shard_names(folder), (std::vector<std::string>{"m1.safetensors", "m2.safetensors"}));
  EXPECT_EQ(read_floats(folder, "b"), (Floats{2, 3}));
  EXPECT_EQ(read_floats(folder, "c"), Floats{4});
}

TEST(HfFolder, ACopyKeepsTheFilesOpen) {
  const ShardedFolder f;
  std::optional<HfFolder> first = HfFolder::open(f.dir.path());
  const HfFolder::Located located = *first->find("b");
  const HfFolder copy = *first;
  first.reset();
  EXPECT_EQ(copy.find("b")->entry, located.entry);
  EXPECT_EQ(located.file->path(), f.dir.file("m1.safetensors"));
  EXPECT_EQ(read_floats(copy, "b"), (Floats{2, 3}));
}

TEST(HfFolder, MtpLayersInAFileOfTheirOwn) {
  const ShardedFolder f;
  write_floats(f.dir.file("mtp.safetensors"), {{"d", {9}}});
  EXPECT_EQ(shard_names(HfFolder::open(f.dir.path())),
            (std::vector<std::string>{"m1.safetensors", "m2.safetensors", "mtp.safetensors"}));
  EXPECT_EQ(read_floats(HfFolder::open(f.dir.path()), "d"), Floats{9});
  const auto single = f.dir.file("model.safetensors");
  write_floats(single, {{"a", {1}}, {"b", {2, 3}}, {"c", {4}}});
  EXPECT_EQ(HfFolder::open(f.dir.path()).tensor_names().size(), 4u);
  std::filesystem::remove(f.dir.file(kHfIndexName));
  EXPECT_EQ(shard_names(HfFolder::open(f.dir.path())),
            (std::vector<std::string>{"model.safetensors", "mtp.safetensors"}));
  write_floats(f.dir.file("mtp.safetensors"), {{"a", {9}}});
  f.expect_refused("in two shards");
}

TEST(HfFolder, ShardsWithoutIndex) {
  const TempDir dir;
  dir.put("config.json", "{}");
  write_floats(dir.file("model-00001-of-00002.safetensors"), {{"a", {1}}});
  expect_error(ErrorCode::kInput, "1 of 2 shards", [&] { HfFolder::open(dir.path()); });
  write_floats(dir.file("model-00002-of-00002.safetensors"), {{"b", {1}}});
  EXPECT_EQ(HfFolder::open(dir.path()).tensor_names().size(), 2u);
  write_floats(dir.file("extra.safetensors"), {{"b", {1}}});
  expect_error(ErrorCode::kInput, "in two shards", [&] { HfFolder::open(dir.path()); });
}

TEST(HfFolder, IndexDisagrees) {
  const ShardedFolder f;
  f.put_index({{"a", "m1.safetensors"}, {"c", "m3.safetensors"}});
  f.expect_refused("m3.safetensors, which is not in the folder");
  f.put_index({{"a", "m1.safetensors"}, {"z", "m2.safetensors"}});
  f.expect_refused("\"z\" to m2.safetensors, which does not hold it");
  f.put_index({{"a", "m2.safetensors"}, {"b", "m1.safetensors"}});
  f.expect_refused("\"a\" to m2.safetensors, but it is in m1.safetensors");
  // A tensor in a shard but not in the index is used, with a warning.
  f.put_index({{"a", "m1.safetensors"}, {"c", "m2.safetensors"}});
  EXPECT_EQ(HfFolder::open(f.dir.path()).tensor_names().size(), 3u);
  write_floats(f.dir.file("m2.safetensors"), {{"c", {4}}, {"a", {1}}});
  f.expect_refused("in two shards");
}

TEST(HfFolder, IndexLeavesTheFolder) {
  const ShardedFolder f;
  for (const char* file : {"../m1.safetensors", "/etc/x.safetensors", "d/m1.safetensors", "..", ".",
                           "", "d\\m1.safetensors"}) {
    f.put_index({{"a", file}});
    f.expect_refused("not a file in this folder");
  }
  f.put_index({{"a", "pytorch_model.bin"}});
  f.expect_refused("not a .safetensors file");
}

TEST(HfFolder, IndexMalformed) {
  const ShardedFolder f;
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"{", "JSON"},
      {"[]", "weight_map"},
      {"{\"weight_map\": []}", "weight_map"},
      {"{\"weight_map\": {}}", "is empty"},
      {"{\"weight_map\": {\"a\": 1}}", "not a file name"},
      {R"({"weight_map": {"a": "m1.safetensors", "a": "m2.safetensors"}})", "duplicate key"},
      {R"({"weight_map": {"a": "x"}, "weight_map": {}})", "duplicate key"},
      {"version https://git-lfs.github.com/spec/v1\n", "JSON"}};
  for (const auto& [text, error] : cases) {
    f.dir.put(kHfIndexName, text);
    f.expect_refused(error);
  }
}

TEST(HfFolder, BothFormsPresent) {
  const ShardedFolder f;
  const auto single = f.dir.file("model.safetensors");
  write_floats(single, {{"a", {1}}, {"b", {2, 3}}, {"c", {4}}});
  EXPECT_NO_THROW(HfFolder::open(f.dir.path()));
  write_floats(single, {{"a", {1}}, {"b", {2, 3.5}}, {"c", {4}}});
  f.expect_refused("values of tensor \"b\"");
  write_floats(single, {{"a", {1}}, {"b", {2}}, {"c", {4}}});
  f.expect_refused("disagree: tensor \"b\"");
  write_floats(single, {{"a", {1}}});
  f.expect_refused("1 tensors against 3");
}

TEST(HfFolder, FilesThatAreNotWeights) {
  const ShardedFolder f;
  f.dir.put("m2.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n");
  f.expect_refused("git lfs pull");
  std::filesystem::remove(f.dir.file("m2.safetensors"));
  std::filesystem::create_directory(f.dir.file("m2.safetensors"));
  f.expect_refused("not a regular file");
  const TempDir empty;
  expect_error(ErrorCode::kInput, "no config.json", [&] { HfFolder::open(empty.path()); });
  expect_error(ErrorCode::kInput, "no such folder", [&] { HfFolder::open(empty.file("x")); });
  empty.put("config.json", "{}");
  expect_error(ErrorCode::kInput, "no .safetensors file", [&] { HfFolder::open(empty.path()); });
  empty.put("pytorch_model.bin", "PK");
  expect_error(ErrorCode::kInput, "convert the PyTorch pickle",
               [&] { HfFolder::open(empty.path()); });
  empty.put("config.json", "[]");
  expect_error(ErrorCode::kInput, "JSON object", [&] { HfFolder::open(empty.path()); });
}

TEST(HfFolder, WeightsThatAreNoFile) {
  const TempDir dir;
  dir.put("config.json", "{}");
  const std::string path = dir.file("model.safetensors");
  const auto refuse = [&](const char* words) {
    const auto text = expect_error(ErrorCode::kInput, words, [&] { HfFolder::open(dir.path()); });
    EXPECT_NE(text.find(path), std::string::npos) << text;
    std::filesystem::remove(path);
  };
  std::filesystem::create_directory(path);
  refuse("this is a folder");
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  refuse("this is a pipe");
  std::filesystem::create_symlink("nowhere", path);
  refuse("a broken link");
}

TEST(HfFolder, DTypeThatCannotBeRead) {
  const TempDir dir;
  dir.put("config.json", "{}");
  const std::string header = R"({"s":{"dtype":"F8_E8M0","shape":[2],"data_offsets":[0,2]}})";
  const uint64_t n = header.size();
  dir.put("model.safetensors", std::string(reinterpret_cast<const char*>(&n), 8) + header + "xx");
  expect_error(ErrorCode::kInput, "dtype F8_E8M0", [&] { HfFolder::open(dir.path()); });
}

TEST(HfFolder, EosTokenIds) {
  const ShardedFolder f;
  const auto ids = [&] { return HfFolder::open(f.dir.path()).eos_token_ids(); };
  using Ids = std::vector<int32_t>;
  EXPECT_EQ(ids(), Ids{7});
  f.dir.put("generation_config.json", R"({"eos_token_id": [5, 6]})");
  EXPECT_EQ(ids(), (Ids{5, 6}));
  f.dir.put("generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_EQ(ids(), Ids{3});
  for (const char* none : {"{}", R"({"eos_token_id": null})", R"({"eos_token_id": []})"}) {
    f.dir.put("generation_config.json", none);
    EXPECT_EQ(ids(), Ids{7}) << none;
  }
  for (const char* bad :
       {"-1", "1.5", "\"x\"", "[1, null]", "4294967296", "18446744073709551615", "{}"}) {
    f.dir.put("generation_config.json", std::string("{\"eos_token_id\": ") + bad + "}");
    expect_error(ErrorCode::kInput, "generation_config.json", [&] { ids(); });
  }
  for (const char* bad : {"3", "[5]", "null", "\"x\""}) {
    f.dir.put("generation_config.json", bad);
    expect_error(ErrorCode::kInput, "a JSON object is expected", [&] { ids(); });
  }
}

// --- writing ---

HfTensor as_tensor(const HfFolder& folder, const std::string& name) {
  const auto located = *folder.find(name);
  return {name, located.entry->dtype, located.entry->shape,
          [located](int64_t begin, int64_t end, void* out) {
            located.file->read(*located.entry, begin, end, out);
          }};
}

TEST(HfWrite, RoundTripKeepsTheBytes) {
  const ShardedFolder f;
  f.dir.put("tokenizer.json", "{}\n");
  const HfFolder source = HfFolder::open(f.dir.path());
  HfWriteOptions options;
  options.template_directory = f.dir.path();
  std::vector<HfTensor> tensors;
  for (const auto& name : source.tensor_names()) {
    tensors.push_back(as_tensor(source, name));
    options.shards[name] = std::filesystem::path(source.find(name)->file->path()).filename();
  }
  const TempDir out;
  write_hf_folder(out.path(), tensors, options);
  for (const char* name : {"m1.safetensors", "m2.safetensors", "config.json", "tokenizer.json"}) {
    EXPECT_EQ(TempDir::read_bytes(out.file(name)), TempDir::read_bytes(f.dir.file(name))) << name;
  }
  EXPECT_EQ(HfFolder::open(out.path()).tensor_names(), source.tensor_names());
  options.shards.erase("c");
  const TempDir other;
  expect_error(ErrorCode::kInput, "there is no shard file for tensor \"c\"",
               [&] { write_hf_folder(other.path(), tensors, options); });
}

HfTensor counting_tensor(const std::string& name, int64_t n, DType dtype = DType::kI32) {
  return {name, dtype, {n}, [=](int64_t begin, int64_t end, void* out) {
            const int64_t width = tensor::dtype_bytes(dtype);
            for (int64_t i = begin; i < end; ++i) {
              std::memcpy(static_cast<char*>(out) + (i - begin) * width, &i, size_t(width));
            }
          }};
}

TEST(HfWrite, ShardsBySize) {
  const TempDir out;
  HfWriteOptions options;
  options.max_shard_bytes = 100;
  write_hf_folder(
      out.path(),
      {counting_tensor("a", 10), counting_tensor("b", 15), counting_tensor("c", 1),
       counting_tensor("huge", 1000), counting_tensor("d", 0), counting_tensor("e", 25)},
      options);
  EXPECT_EQ(
      list_files(out.path()),
      (std::vector<std::string>{
          "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
          "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors", kHfIndexName}));
  const Json index = Json::parse(TempDir::read_bytes(out.file(kHfIndexName)));
  EXPECT_EQ(index["metadata"]["total_size"], 4 * (10 + 15 + 1 + 1000 + 25));
  EXPECT_EQ(index["weight_map"]["b"], "model-00001-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["c"], "model-00002-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["huge"], "model-00003-of-00004.safetensors");
  EXPECT_EQ(index["weight_map"]["e"], "model-00004-of-00004.safetensors");
  out.put("config.json", "{}");
  EXPECT_EQ(HfFolder::open(out.path()).tensor_names().size(), 6u);
}

TEST(HfWrite, LargeTensorInChunks) {
  const TempDir out;
  constexpr int64_t kElements = 5'000'001;  // 20 MB: three chunks
  write_hf_folder(out.path(),
                  {counting_tensor("z", 3, DType::kI64), counting_tensor("w", kElements)}, {});
  EXPECT_EQ(list_files(out.path()), std::vector<std::string>{kHfSingleName});
  const SafetensorsFile file(out.file(kHfSingleName));
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  std::vector<int32_t> values(kElements);
  file.read(*file.find("w"), 0, kElements, values.data());
  for (int64_t i = 0; i < kElements; ++i) ASSERT_EQ(values[size_t(i)], i);
}

TEST(HfWrite, ConfigOverrides) {
  const ShardedFolder f;
  Json overrides{{"hidden_size", 8}, {"tie_word_embeddings", true}};
  HfWriteOptions options;
  options.template_directory = f.dir.path();
  options.config_overrides = &overrides;
  const TempDir out;
  write_hf_folder(out.path(), {counting_tensor("w", 1)}, options);
  EXPECT_EQ(
      TempDir::read_bytes(out.file("config.json")),
      "{\n  \"eos_token_id\": 7,\n  \"hidden_size\": 8,\n  \"tie_word_embeddings\": true\n}\n");
}

TEST(HfWrite, PlainTensorsLoseTheQuantisation) {
  const ShardedFolder f;
  HfWriteOptions options;
  options.template_directory = f.dir.path();
  const auto write = [&](const char* config, bool drops) {
    f.dir.put("config.json", config);
    options.drops_quantization = drops;
    const TempDir out;
    write_hf_folder(out.path(), {counting_tensor("w", 1)}, options);
    return TempDir::read_bytes(out.file("config.json"));
  };
  const char* quantised = R"({"a": 1, "quantization_config": {"quant_method": "fp8"}})";
  EXPECT_EQ(write(quantised, false), quantised);
  EXPECT_EQ(write(quantised, true), "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(write(R"({"a": 1})", true), R"({"a": 1})");
}

TEST(HfWrite, RefusesToMix) {
  const ShardedFolder f;
  HfWriteOptions options;
  options.template_directory = f.dir.path();
  expect_error(ErrorCode::kUsage, "the output folder is the input folder",
               [&] { write_hf_folder(f.dir.path() + "/.", {counting_tensor("w", 1)}, options); });
  options.template_directory = "";
  expect_error(ErrorCode::kUsage, "already holds weights",
               [&] { write_hf_folder(f.dir.path(), {counting_tensor("w", 1)}, options); });
}

// A folder as in the Hugging Face cache, where a snapshot consists of links into a folder of blobs.
TEST(CopySideFiles, LinksAreFollowed) {
  const TempDir root;
  std::filesystem::create_directories(root.file("snapshots/1"));
  std::filesystem::create_directories(root.file("blobs"));
  root.put("blobs/abc", "{}");
  std::filesystem::create_symlink("../../blobs/abc", root.file("snapshots/1/config.json"));
  write_floats(root.file("blobs/def"), {{"w", {1}}});
  std::filesystem::create_symlink("../../blobs/def", root.file("snapshots/1/model.safetensors"));
  EXPECT_EQ(HfFolder::open(root.file("snapshots/1")).tensor_names().size(), 1u);
  copy_side_files(root.file("snapshots/1"), root.file("out"));
  EXPECT_FALSE(std::filesystem::is_symlink(root.file("out/config.json")));
  EXPECT_EQ(TempDir::read_bytes(root.file("out/config.json")), "{}");
}

}  // namespace
}  // namespace slimexx::io
