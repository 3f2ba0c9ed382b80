#include "slimexx/io/checkpoint.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/folder_files.h"
#include "io/manifest.h"
#include "io/temp_dir.h"
#include "slimexx/base/file.h"
#include "slimexx/base/philox.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {
namespace {

using tensor::DType;

// Three tensors in two sections; element i of each is a function of the name and i.
const std::vector<CheckpointTensor> kTensors = {
    {"weights", "embed", DType::kBF16, {10, 7}},
    {"weights", "norm", DType::kF32, {7}},
    {"master", "embed", DType::kF32, {10, 7}},
    {"weights", "nothing", DType::kF32, {0, 3}},
};

std::string bytes_of(const CheckpointTensor& t) {
  std::string bytes(size_t(t.num_elements() * tensor::dtype_bytes(t.dtype)), '\0');
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = char(i * 7 + t.name.size() + t.section.size());
  return bytes;
}

struct Model {
  std::vector<std::string> data;
  Model() {
    for (const auto& t : kTensors) data.push_back(bytes_of(t));
  }
  CheckpointPiece piece(size_t t, int64_t begin, int64_t end) const {
    return {kTensors[t].section, kTensors[t].name, begin, end,
            data[t].data() + begin * tensor::dtype_bytes(kTensors[t].dtype)};
  }
  // Rank r of n holds the r-th part of every tensor.
  ShardInfo write(const std::string& directory, int rank, int ranks) const {
    std::vector<CheckpointPiece> pieces;
    for (size_t t = 0; t < kTensors.size(); ++t) {
      const int64_t n = kTensors[t].num_elements();
      pieces.push_back(piece(t, n * rank / ranks, n * (rank + 1) / ranks));
    }
    return write_shard(directory, rank, ranks, kTensors, pieces);
  }
  void save(const std::string& directory, int ranks, const Json& state = Json::object()) const {
    std::vector<ShardInfo> shards;
    for (int r = 0; r < ranks; ++r)
      shards.push_back(shard_from_json(shard_to_json(write(directory, r, ranks))));
    write_manifest(directory, shards, state);
  }
  void expect_in(const Checkpoint& checkpoint) const {
    ASSERT_EQ(checkpoint.tensors().size(), kTensors.size());
    for (size_t t = 0; t < kTensors.size(); ++t) {
      std::string read(data[t].size(), '\0');
      checkpoint.read(kTensors[t].section, kTensors[t].name, 0, kTensors[t].num_elements(),
                      read.data());
      EXPECT_EQ(read, data[t]) << kTensors[t].section << '/' << kTensors[t].name;
    }
  }
};

TEST(Checkpoint, RoundTripOnAnyNumberOfRanks) {
  const Model model;
  for (const int ranks : {1, 2, 3, 5, 16}) {
    const TempDir dir;
    model.save(dir.file("step"), ranks);
    const Checkpoint checkpoint = Checkpoint::open(dir.file("step"));
    checkpoint.verify_hashes();
    model.expect_in(checkpoint);
    for (size_t t = 0; t < 3; ++t) {
      const int64_t n = kTensors[t].num_elements(), width = tensor::dtype_bytes(kTensors[t].dtype);
      for (int64_t begin = 0; begin <= n; ++begin) {
        for (int64_t end = begin; end <= n; end += 3) {
          std::string out(size_t((end - begin) * width), '\0');
          checkpoint.read(kTensors[t].section, kTensors[t].name, begin, end, out.data());
          ASSERT_EQ(out, model.data[t].substr(size_t(begin * width), size_t((end - begin) * width)))
              << ranks << " ranks, tensor " << t << " [" << begin << ", " << end << ")";
        }
      }
    }
  }
}

TEST(Checkpoint, Lookups) {
  const TempDir dir;
  Model().save(dir.path(), 2);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.directory(), dir.path());
  EXPECT_EQ(checkpoint.find("weights", "nothing")->shape, (std::vector<int64_t>{0, 3}));
  EXPECT_EQ(checkpoint.find("master", "norm"), nullptr);
  expect_error(ErrorCode::kInput, "no tensor \"norm\" in section \"master\"",
               [&] { checkpoint.read("master", "norm", 0, 0, nullptr); });
}

TEST(Checkpoint, StateIsKept) {
  const TempDir dir;
  const Json state = parse_json(
      R"({"step": 12, "seed": 18446744073709551615, "n": -9223372036854775808, "lr": 1e-6, "tiny": 5e-324,
          "third": 0.3333333333333333, "z": null, "a": [true, "\u0000\ud83d\ude00\"\\"], "one": 1.0})",
      "test");
  Model().save(dir.path(), 1, state);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.state().dump(), state.dump());
  for (const Json& bad : {Json{{"x", std::nan("")}}, Json{{"x", "\xFF"}}}) {
    const TempDir other;
    expect_error(ErrorCode::kRun, "the state cannot be kept",
                 [&] { Model().save(other.path(), 1, bad); });
    EXPECT_FALSE(path_exists(other.file(kManifestName)));
  }
}

TEST(Checkpoint, SameContentSameBytes) {
  const TempDir dir;
  Model().save(dir.file("a"), 3, {{"step", 1}});
  Model().save(dir.file("b"), 3, {{"step", 1}});
  for (const auto& name : list_files(dir.file("a"))) {
    EXPECT_EQ(TempDir::read_bytes(dir.file("a/" + name)),
              TempDir::read_bytes(dir.file("b/" + name)))
        << name;
  }
}

TEST(Checkpoint, WholeTensorsKeepTheirShape) {
  const TempDir dir;
  Model().save(dir.path(), 1);
  const SafetensorsFile file(dir.file("shard-00000-of-00001.safetensors"));
  EXPECT_EQ(file.find("weights/embed")->shape, (std::vector<int64_t>{10, 7}));
}

TEST(Checkpoint, CoverageIsExact) {
  const Model model;
  const auto commit = [&](const std::vector<CheckpointPiece>& pieces, const char* error) {
    const TempDir dir;
    const ShardInfo shard = write_shard(dir.path(), 0, 1, kTensors, pieces);
    expect_error(ErrorCode::kRun, error,
                 [&] { write_manifest(dir.path(), {shard}, Json::object()); });
    EXPECT_FALSE(path_exists(dir.file(kManifestName)));
    expect_error(ErrorCode::kInput, "no manifest.json", [&] { Checkpoint::open(dir.path()); });
  };
  const auto norm = model.piece(1, 0, 7), master = model.piece(2, 0, 70);
  commit({norm, master}, "the pieces end at element 0 of 70");
  commit({norm, master, model.piece(0, 1, 70)}, "elements [0, 1) are in no shard");
  commit({norm, master, model.piece(0, 0, 69)}, "end at element 69 of 70");
  commit({norm, master, model.piece(0, 0, 10), model.piece(0, 11, 70)},
         "elements [10, 11) are in no shard");
  commit({norm, master, model.piece(0, 0, 10), model.piece(0, 9, 70)},
         "elements [9, 10) are in two pieces");
  commit({norm, master, model.piece(0, 0, 70), model.piece(0, 0, 69)}, "in two pieces");
  const TempDir dir;
  auto shard =
      write_shard(dir.path(), 0, 1, kTensors, std::vector{model.piece(0, 0, 70), norm, master});
  shard.tensors.push_back({"weights", kTensors[0].name, DType::kF32, {70}});
  expect_error(ErrorCode::kRun, "differs between ranks",
               [&] { write_manifest(dir.path(), {shard}, {}); });
}

// A matrix that three ranks cut by columns, one of them transposed in memory, beside one that two
// ranks hold by halves and a tensor that only the last rank knows of.
TEST(Checkpoint, BoxesOfSeveralRanks) {
  const TempDir dir;
  const std::vector<CheckpointTensor> both = {{"master", "wide", DType::kI32, {4, 9}},
                                              {"master", "tall", DType::kI32, {6, 5}}};
  std::vector<CheckpointTensor> all = both;
  all.push_back({"master", "late", DType::kI32, {2, 2, 2}});
  std::vector<int32_t> wide(36), tall(30), late(8), turned(12);
  std::iota(wide.begin(), wide.end(), 100);
  std::iota(tall.begin(), tall.end(), 200);
  std::iota(late.begin(), late.end(), 300);
  for (size_t row = 0; row < 4; ++row)
    for (size_t column = 0; column < 3; ++column)
      turned[column * 4 + row] = wide[row * 9 + 6 + column];
  const auto columns = [&](int64_t begin) {
    return CheckpointPiece{
        "master", "wide", 0, 0, wide.data() + begin, {{0, begin}, {4, begin + 3}}, {9, 1}};
  };
  const CheckpointPiece last{"master", "wide", 0, 0, turned.data(), {{0, 6}, {4, 9}}, {1, 4}};
  // A range that ends inside a row, and the rest as a box of rows.
  const CheckpointPiece range{"master", "tall", 0, 15, tall.data()};
  const CheckpointPiece rows{"master", "tall", 0, 0, tall.data() + 15, {{3, 0}, {6, 5}}, {5, 1}};
  const CheckpointPiece whole{"master", "late", 0, 8, late.data()};
  const auto commit = [&](const std::vector<CheckpointPiece>& third) {
    const std::vector<ShardInfo> shards = {
        write_shard(dir.path(), 0, 3, both, std::vector{columns(0), range}),
        write_shard(dir.path(), 1, 3, both, std::vector{columns(3), rows}),
        write_shard(dir.path(), 2, 3, all, third)};
    std::vector<ShardInfo> sent;
    for (const ShardInfo& shard : shards) sent.push_back(shard_from_json(shard_to_json(shard)));
    write_manifest(dir.path(), sent, {});
  };
  expect_error(ErrorCode::kRun, "in no shard", [&] { commit({whole}); });
  expect_error(ErrorCode::kRun, "in two pieces", [&] { commit({whole, last, rows}); });
  commit({whole, last});
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  checkpoint.verify_hashes();
  ASSERT_EQ(checkpoint.tensors().size(), 3u);
  const auto expect = [&](const char* name, const std::vector<int32_t>& values) {
    const auto n = static_cast<int64_t>(values.size());
    for (int64_t begin = 0; begin < n; ++begin) {
      for (int64_t end = begin + 1; end <= n; ++end) {
        std::vector<int32_t> read(static_cast<size_t>(end - begin));
        checkpoint.read("master", name, begin, end, read.data());
        ASSERT_EQ(read, std::vector<int32_t>(values.begin() + begin, values.begin() + end))
            << name << " [" << begin << ", " << end << ")";
      }
    }
  };
  expect("wide", wide);
  expect("tall", tall);
  expect("late", late);
}

TEST(Checkpoint, EveryFlippedByteIsFound) {
  const TempDir dir;
  dir.put("config.json", "{\"a\": 1}");
  Model().save(dir.path(), 2, {{"step", 3}, {"rng", {1, 2, 3}}});
  PhiloxStream random(1, 2);
  const auto files = list_files(dir.path());
  EXPECT_EQ(files.size(), 4u);
  for (const auto& name : files) {
    const std::string good = TempDir::read_bytes(dir.file(name));
    for (size_t at = 0; at < good.size(); at += 1 + random.next_below(15)) {
      std::string bad = good;
      bad[at] = char(bad[at] ^ (1 << random.next_below(8)));
      dir.put(name, bad);
      expect_error(ErrorCode::kInput, name, [&] { Checkpoint::open(dir.path()).verify_hashes(); });
    }
    dir.put(name, good);
  }
  EXPECT_NO_THROW(Checkpoint::open(dir.path()).verify_hashes());
}

TEST(Checkpoint, TruncatedMissingOrLongFiles) {
  const TempDir dir;
  dir.put("config.json", "{\"a\": 1}");
  Model().save(dir.path(), 2);
  for (const auto& name : list_files(dir.path())) {
    const std::string good = TempDir::read_bytes(dir.file(name));
    const std::string wrong[] = {good.substr(0, good.size() - 1), good.substr(0, good.size() / 2),
                                 "", good + "\n"};
    for (const auto& content : wrong) {
      dir.put(name, content);
      expect_error(ErrorCode::kInput, name, [&] { Checkpoint::open(dir.path()); });
    }
    std::filesystem::remove(dir.file(name));
    const auto text = expect_error(ErrorCode::kInput, name, [&] { Checkpoint::open(dir.path()); });
    EXPECT_NE(text.find("missing") + text.find("has no manifest"), 2 * std::string::npos) << text;
    dir.put(name, good);
  }
}

TEST(Checkpoint, ShardOfAnotherCheckpoint) {
  const TempDir dir;
  const auto saved = [&](const char* name, const char* tensor) {
    const std::vector<CheckpointTensor> tensors = {{"weights", tensor, DType::kU8, {4}}};
    const CheckpointPiece piece{"weights", tensor, 0, 4, "abcd"};
    write_manifest(dir.file(name), {write_shard(dir.file(name), 0, 1, tensors, {&piece, 1})}, {});
    return dir.file(name) + "/shard-00000-of-00001.safetensors";
  };
  const auto a = saved("a", "x"), b = saved("b", "y");
  std::filesystem::copy_file(b, a, std::filesystem::copy_options::overwrite_existing);
  expect_error(ErrorCode::kInput, "the shard lacks \"weights/x\"",
               [&] { Checkpoint::open(dir.file("a")); });
}

TEST(Checkpoint, SideFiles) {
  const TempDir model, dir;
  model.put("config.json", "{}");
  model.put("tokenizer.json", "{\"x\": 1}");
  copy_side_files(model.path(), dir.file("s"));
  Model().save(dir.file("s"), 1);
  dir.put("s/notes.txt", "added later: not of the checkpoint");
  EXPECT_NO_THROW(Checkpoint::open(dir.file("s")).verify_hashes());
  dir.put("s/tokenizer.json", "{\"x\": 2}");
  expect_error(ErrorCode::kInput, "tokenizer.json",
               [&] { Checkpoint::open(dir.file("s")).verify_hashes(); });
}

// A step that is written again: no moment at which old manifest and new shards pass for a
// checkpoint.
TEST(Checkpoint, RewritingDropsTheManifestFirst) {
  const TempDir dir;
  const Model model;
  model.save(dir.path(), 4);
  dir.put("shard-00001-of-00004.safetensors.tmp.77", "left by a killed writer");
  const ShardInfo first = model.write(dir.path(), 0, 2);
  EXPECT_FALSE(path_exists(dir.file(kManifestName)));
  write_manifest(dir.path(), {first, model.write(dir.path(), 1, 2)}, {});
  EXPECT_EQ(list_files(dir.path()),
            (std::vector<std::string>{kManifestName, "shard-00000-of-00002.safetensors",
                                      "shard-00001-of-00002.safetensors"}));
  model.expect_in(Checkpoint::open(dir.path()));
}

TEST(Checkpoint, DiskFull) {
  const TempDir dir;
  const std::vector<CheckpointTensor> tensors = {{"weights", "w", DType::kU8, {100000}}};
  const std::string data(100000, 'x');
  const CheckpointPiece piece{"weights", "w", 0, 100000, data.data()};
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const auto with_limit = [&](rlim_t bytes, auto&& body) {
    const rlimit small{bytes, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    body();
    ::setrlimit(RLIMIT_FSIZE, &old);
  };
  with_limit(50000, [&] {
    expect_error(ErrorCode::kEnvironment, "cannot write", [&] {
      write_shard(dir.path(), 0, 1, tensors, {&piece, 1});
    });
  });
  EXPECT_TRUE(list_files(dir.path()).empty());
  const auto shard = write_shard(dir.path(), 0, 1, tensors, {&piece, 1});
  with_limit(100, [&] {
    expect_error(ErrorCode::kEnvironment, "cannot write",
                 [&] { write_manifest(dir.path(), {shard}, {}); });
  });
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(list_files(dir.path()), std::vector<std::string>{shard.file});
}

// --- manifests that others wrote ---

Json good_manifest() {
  const std::string hash(32, 'a');
  return parse_json(R"({"format": "slimexx checkpoint", "version": 1,
    "tensors": [{"section": "weights", "name": "w", "dtype": "F32", "shape": [2, 3]}],
    "shards": [{"file": "s.safetensors", "size_bytes": 100, "hash": ")" +
                        hash + R"(",
                "pieces": [{"section": "weights", "name": "w", "begin": 0, "end": 6, "key": "k"}]}],
    "side_files": [{"file": "config.json", "size_bytes": 2, "hash": ")" +
                        hash + R"("}], "state": {}})",
                    "test");
}

TEST(Manifest, MalformedIsRefused) {
  EXPECT_NO_THROW(read_manifest_json(good_manifest(), "m"));
  struct Case {
    const char *pointer, *value, *error;
  };
  const Case cases[] = {
      {"/format", "\"other\"", "not the manifest"},
      {"/version", "3", "format version 3, this program reads 1 to 2"},
      {"/version", "9007199254740993", "use the newer slimexx"},
      {"/version", "0", "format version 0"},
      {"/version", "1.0", "an integer"},
      {"/version", "18446744073709551615", "an integer"},
      {"/tensors", "{}", "\"tensors\" must be a list"},
      {"/tensors/0", "3", "missing"},
      {"/tensors/0/section", "1", "a string"},
      {"/tensors/0/dtype", "\"F33\"", "unknown dtype"},
      {"/tensors/0/shape", "[-1]", "impossible shape"},
      {"/tensors/0/shape", "[1.5]", "impossible shape"},
      {"/tensors/0/shape", "[1152921504606846976, 8]", "impossible shape"},
      {"/tensors/0/shape", "[18446744073709551615]", "impossible shape"},
      {"/shards/0/file", "\"../s.safetensors\"", "not a file of the checkpoint's folder"},
      {"/shards/0/file", "\"/etc/passwd\"", "not a file of the checkpoint's folder"},
      {"/shards/0/file", "\"\"", "not a file of the checkpoint's folder"},
      {"/shards/0/file", "\"a\\u0000b\"", "not a file of the checkpoint's folder"},
      {"/shards/0/file", "\"manifest.json\"", "not a file of the checkpoint's folder"},
      {"/shards/0/file", "\"config.json\"", "listed twice"},
      {"/shards/0/size_bytes", "-1", "negative"},
      {"/shards/0/size_bytes", "1e30", "an integer"},
      {"/shards/0/hash", "\"abc\"", "not a hash"},
      {"/shards/0/hash", "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\"", "not a hash"},
      {"/shards/0/pieces", "null", "must be a list"},
      {"/shards/0/pieces/0/begin", "-1", "negative"},
      {"/shards/0/pieces/0/begin", "6", "is empty"},
      {"/shards/0/pieces/0/end", "99999999999999999999", "an integer"},
      {"/shards/0/pieces/0/begin", "[0, 0]", "an integer"},
      {"/side_files/0/file", "\"..\"", "not a file of the checkpoint's folder"},
      {"/side_files/0/size_bytes", "\"2\"", "an integer"},
  };
  for (const Case& c : cases) {
    Json json = good_manifest();
    json[Json::json_pointer(c.pointer)] = Json::parse(c.value);
    const auto text =
        expect_error(ErrorCode::kInput, c.error, [&] { read_manifest_json(json, "m.json"); });
    EXPECT_NE(text.find("m.json"), std::string::npos) << text;
  }
  for (const char* key : {"format", "version", "tensors", "shards", "side_files", "state"}) {
    Json json = good_manifest();
    json.erase(key);
    expect_error(ErrorCode::kInput, "", [&] { read_manifest_json(json, "m"); });
  }
}

TEST(Manifest, TextIsCheckedAsAWhole) {
  const TempDir dir;
  Model().save(dir.path(), 1);
  const std::string good = TempDir::read_bytes(dir.file(kManifestName));
  EXPECT_NO_THROW(parse_manifest(good, "m"));
  const auto refuse = [&](std::string text, const char* error) {
    expect_error(ErrorCode::kInput, error, [&] { parse_manifest(text, "m"); });
  };
  refuse(good.substr(0, good.size() - 1), "does not end with its content_hash");
  refuse(good + " ", "does not end with its content_hash");
  refuse(good_manifest().dump(), "does not end with its content_hash");
  refuse("{\"format\": 1, " + good.substr(1), "duplicate key");
  std::string edited = good;
  edited.replace(edited.find("\"norm\""), 6, "\"nurm\"");
  refuse(edited, "content_hash is");
  // A newer format is called that, whatever its end looks like.
  std::string newer = good;
  newer.replace(newer.find("content_hash"), 12, "content_seal");
  newer.replace(newer.find("\"version\": 1"), 12, "\"version\": 7");
  refuse(newer, "use the newer slimexx");
  refuse("", "JSON");
  refuse(std::string(100000, '['), "deeper");
}

TEST(Manifest, CoverageOfWhatOthersWrote) {
  const TempDir dir;
  Json json = good_manifest();
  const auto cover = [&] {
    const Manifest m = read_manifest_json(Json::parse(json.dump()), "m");
    return cover_tensors(m.tensors, m.shards, ErrorCode::kInput, "m");
  };
  EXPECT_EQ(cover().size(), 1u);
  json["shards"][0]["pieces"][0]["end"] = INT64_MAX;
  expect_error(ErrorCode::kInput, "end at element 9223372036854775807 of 6", cover);
  auto& piece = json["shards"][0]["pieces"][0];
  const auto box = [&](const Json& begin, const Json& end) {
    piece["begin"] = begin;
    piece["end"] = end;
  };
  box({0, 0}, {2, 3});
  EXPECT_EQ(cover().size(), 1u);
  for (const Json& end : {Json{2, 2}, Json{2, 4}, Json{INT64_MAX, 3}, Json{2, 3, 1}}) {
    box(end.size() == 3 ? Json{0, 0, 0} : Json{0, 0}, end);
    expect_error(ErrorCode::kInput, "in no shard", cover);
  }
  box({0, 0}, Json::array({2}));
  expect_error(ErrorCode::kInput, "is empty", cover);
  box({0, 3}, {2, 3});
  expect_error(ErrorCode::kInput, "is empty", cover);
  box({0, -1}, {2, 3});
  expect_error(ErrorCode::kInput, "whole numbers", cover);
  piece["begin"] = 0;
  piece["end"] = 6;
  piece["name"] = "v";
  expect_error(ErrorCode::kInput, "not in the list of tensors", cover);
}

// --- the folder of a run ---

void save_step(const TempDir& dir, int64_t step, bool set = true) {
  Model().save(step_directory(dir.path(), step), 1, {{"step", step}});
  if (set)
    set_latest(dir.path(), std::filesystem::path(step_directory(dir.path(), step)).filename());
}
std::vector<std::string> steps_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& e : std::filesystem::directory_iterator(dir.path())) {
    if (e.is_directory()) names.push_back(e.path().filename());
  }
  std::ranges::sort(names);
  return names;
}
using Names = std::vector<std::string>;

TEST(CheckpointRoot, FindsTheNewestComplete) {
  const TempDir dir;
  EXPECT_EQ(find_latest(dir.path()), "");
  EXPECT_EQ(find_latest(dir.file("absent")), "");
  EXPECT_EQ(step_directory("r", 40), "r/step_000040");
  EXPECT_EQ(step_directory("r", 12345678), "r/step_12345678");
  save_step(dir, 20);
  save_step(dir, 40);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  EXPECT_EQ(find_latest(dir.file("step_000020")), dir.file("step_000020"));
  save_step(dir, 60, false);  // died before `latest` was replaced
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000060"));
  Model().write(dir.file("step_000080"), 0, 2);  // died before the manifest
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000060"));
  std::filesystem::resize_file(dir.file("step_000060/shard-00000-of-00001.safetensors"), 100);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  std::filesystem::remove(dir.file("latest"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  for (const std::string& bad :
       {std::string("step_000099\n"), std::string("../../x\n"), std::string(),
        std::string("step_\n"), std::string("step_000020\nmore\n"), std::string(3 << 20, 'x'),
        std::string(100, '\0')}) {
    dir.put("latest", bad);
    EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040")) << bad.substr(0, 20);
  }
  std::filesystem::remove(dir.file("latest"));
  std::filesystem::create_directory(dir.file("latest"));
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
}

// A copy without times (cp -r) gives all files those of the copy, in any order.
void set_hours_ago(const std::string& path, int hours) {
  std::filesystem::last_write_time(
      path, std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
}

TEST(CheckpointRoot, TimesOfFilesDoNotDecide) {
  const TempDir dir;
  save_step(dir, 20);
  save_step(dir, 40, false);  // died before `latest` was replaced
  set_hours_ago(dir.file("step_000040/manifest.json"), 5);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
}

TEST(CheckpointRoot, TidiesWhatAKillLeft) {
  const TempDir dir;
  for (const int64_t step : {20, 40}) save_step(dir, step);
  save_step(dir, 60, false);  // died between manifest and `latest`, and before remove_old
  const pid_t child = fork();
  if (child == 0) _exit(0);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  dir.put("latest.tmp." + std::to_string(child), "step_0000");
  tidy_root(dir.path(), 2);
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000060\n");
  EXPECT_EQ(steps_in(dir), (Names{"step_000040", "step_000060"}));
  EXPECT_EQ(list_files(dir.path()), Names{"latest"});
  const TempDir empty;
  tidy_root(empty.path(), 2);
  EXPECT_TRUE(list_files(empty.path()).empty());
}

TEST(CheckpointState, CountersAreCounts) {
  const Json state = {
      {"zero", 0},        {"most", kMaxCounter}, {"negative", -1}, {"huge", kMaxCounter + 1},
      {"max", INT64_MAX}, {"text", "7"},         {"real", 1.0}};
  EXPECT_EQ(read_counter(state, "zero", "m"), 0);
  EXPECT_EQ(read_counter(state, "most", "m"), kMaxCounter);
  for (const char* key : {"negative", "huge", "max", "text", "real", "none"})
    expect_error(ErrorCode::kInput, key, [&] { read_counter(state, key, "m"); });
}

TEST(CheckpointRoot, GoingBackToAnEarlyStep) {
  const TempDir dir;
  for (const int64_t step : {20, 40, 60}) save_step(dir, step);
  // The user went on from step 20; steps 40 and 60 are of the run that was given up.
  save_step(dir, 30);
  set_hours_ago(dir.file("latest"), 5);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000030"));
  // The step is written anew, and the run dies before `latest` can say so.
  const std::string abandoned = TempDir::read_bytes(dir.file("step_000040/manifest.json"));
  Model().save(dir.file("step_000040"), 1, {{"step", 40}, {"anew", true}});
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000040"));
  dir.put("step_000040/manifest.json", abandoned);
  EXPECT_EQ(find_latest(dir.path()), dir.file("step_000030"));
  remove_old(dir.path(), 1);
  EXPECT_EQ(steps_in(dir), (Names{"step_000030", "step_000040", "step_000060"}));
}

TEST(CheckpointRoot, RemovesOld) {
  const TempDir dir;
  for (int64_t step = 1; step <= 5; ++step) save_step(dir, step);
  Model().write(dir.file("step_000003x"), 0, 2);  // not a step folder
  std::filesystem::remove(dir.file("step_000004/manifest.json"));
  Model().write(dir.file("step_000009"), 0, 2);  // being written
  std::filesystem::create_directory_symlink(dir.file("step_000003x"), dir.file("step_000000"));
  remove_old(dir.path(), 0);
  EXPECT_EQ(steps_in(dir).size(), 8u);
  remove_old(dir.path(), 3);
  EXPECT_EQ(steps_in(dir), (Names{"step_000000", "step_000002", "step_000003", "step_000003x",
                                  "step_000005", "step_000009"}));
  std::filesystem::resize_file(dir.file("step_000003/shard-00000-of-00001.safetensors"), 5);
  remove_old(dir.path(), 2);  // the damaged one does not count
  EXPECT_TRUE(path_exists(dir.file("step_000002/manifest.json")));
  remove_old(dir.path(), 1);
  EXPECT_EQ(steps_in(dir), (Names{"step_000000", "step_000003x", "step_000005", "step_000009"}));
  EXPECT_TRUE(path_exists(dir.file("step_000003x/shard-00000-of-00002.safetensors")));
}

TEST(CheckpointRoot, SetsLatest) {
  const TempDir dir;
  save_step(dir, 1);
  expect_error(ErrorCode::kRun, "not the name of a step folder",
               [&] { set_latest(dir.path(), "x"); });
  EXPECT_EQ(TempDir::read_bytes(dir.file("latest")), "step_000001\n");
}

}  // namespace
}  // namespace slimexx::io
