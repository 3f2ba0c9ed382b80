#include "slimexx/io/checkpoint.h"

#include <sys/resource.h>

#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "io/checkpoint/manifest.h"
#include "io/folder_files.h"
#include "io/saved_model.h"
#include "io/temp_dir.h"
#include "slimexx/base/file.h"
#include "slimexx/base/philox.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {
namespace {

using tensor::DType;

TEST(Checkpoint, RoundTripOnAnyNumberOfRanks) {
  const SavedModel model;
  for (const int ranks : {1, 2, 3, 5, 16}) {
    const TempDir dir;
    model.save(dir.file("step"), ranks);
    const Checkpoint checkpoint = Checkpoint::open(dir.file("step"));
    checkpoint.verify_hashes();
    model.expect_in(checkpoint);
    for (size_t t = 0; t < 3; ++t) {
      const int64_t n = kSavedTensors[t].num_elements(),
                    width = tensor::dtype_bytes(kSavedTensors[t].dtype);
      for (int64_t begin = 0; begin <= n; ++begin) {
        for (int64_t end = begin; end <= n; end += 3) {
          std::string out(size_t((end - begin) * width), '\0');
          checkpoint.read(kSavedTensors[t].section, kSavedTensors[t].name, begin, end, out.data());
          ASSERT_EQ(out, model.data[t].substr(size_t(begin * width), size_t((end - begin) * width)))
              << ranks << " ranks, tensor " << t << " [" << begin << ", " << end << ")";
        }
      }
    }
  }
}

TEST(Checkpoint, Lookups) {
  const TempDir dir;
  SavedModel().save(dir.path(), 2);
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
  SavedModel().save(dir.path(), 1, state);
  const Checkpoint checkpoint = Checkpoint::open(dir.path());
  EXPECT_EQ(checkpoint.state().dump(), state.dump());
  for (const Json& bad : {Json{{"x", std::nan("")}}, Json{{"x", "\xFF"}}}) {
    const TempDir other;
    expect_error(ErrorCode::kRun, "the state cannot be written",
                 [&] { SavedModel().save(other.path(), 1, bad); });
    EXPECT_FALSE(path_exists(other.file(kManifestName)));
  }
}

TEST(Checkpoint, SameContentSameBytes) {
  const TempDir dir;
  SavedModel().save(dir.file("a"), 3, {{"step", 1}});
  SavedModel().save(dir.file("b"), 3, {{"step", 1}});
  for (const auto& name : list_files(dir.file("a"))) {
    EXPECT_EQ(TempDir::read_bytes(dir.file("a/" + name)),
              TempDir::read_bytes(dir.file("b/" + name)))
        << name;
  }
}

TEST(Checkpoint, WholeTensorsKeepTheirShape) {
  const TempDir dir;
  SavedModel().save(dir.path(), 1);
  const SafetensorsFile file(dir.file("shard-00000-of-00001.safetensors"));
  EXPECT_EQ(file.find("weights/embed")->shape, (std::vector<int64_t>{10, 7}));
}

TEST(Checkpoint, CoverageIsExact) {
  const SavedModel model;
  const auto commit = [&](const std::vector<CheckpointPiece>& pieces, const char* error) {
    const TempDir dir;
    const ShardInfo shard = write_shard(dir.path(), 0, 1, kSavedTensors, pieces);
    expect_error(ErrorCode::kRun, error,
                 [&] { write_manifest(dir.path(), {shard}, Json::object()); });
    EXPECT_FALSE(path_exists(dir.file(kManifestName)));
    expect_error(ErrorCode::kInput, "no manifest.json", [&] { Checkpoint::open(dir.path()); });
  };
  const auto norm = model.piece(1, 0, 7), master = model.piece(2, 0, 70);
  commit({norm, master}, "the pieces end at element 0 of 70");
  commit({norm, master, model.piece(0, 1, 70)}, "elements [0, 1) are missing from all shards");
  commit({norm, master, model.piece(0, 0, 69)}, "end at element 69 of 70");
  commit({norm, master, model.piece(0, 0, 10), model.piece(0, 11, 70)},
         "elements [10, 11) are missing from all shards");
  commit({norm, master, model.piece(0, 0, 10), model.piece(0, 9, 70)},
         "elements [9, 10) are in two pieces");
  commit({norm, master, model.piece(0, 0, 70), model.piece(0, 0, 69)}, "in two pieces");
  const TempDir dir;
  auto shard = write_shard(dir.path(), 0, 1, kSavedTensors,
                           std::vector{model.piece(0, 0, 70), norm, master});
  shard.tensors.push_back({"weights", kSavedTensors[0].name, DType::kF32, {70}});
  expect_error(ErrorCode::kRun, "differs between ranks",
               [&] { write_manifest(dir.path(), {shard}, {}); });
}

// One matrix is split by columns over three ranks, on one of them transposed in memory. Another is
// split into halves over two ranks, and only the last rank declares a third tensor.
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
  // One piece is a range that ends inside a row, the other a box with the remaining rows.
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
  expect_error(ErrorCode::kRun, "missing from all shards", [&] { commit({whole}); });
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
  SavedModel().save(dir.path(), 2, {{"step", 3}, {"rng", {1, 2, 3}}});
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
  SavedModel().save(dir.path(), 2);
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
  SavedModel().save(dir.file("s"), 1);
  dir.put("s/notes.txt", "added later: not of the checkpoint");
  EXPECT_NO_THROW(Checkpoint::open(dir.file("s")).verify_hashes());
  dir.put("s/tokenizer.json", "{\"x\": 2}");
  expect_error(ErrorCode::kInput, "tokenizer.json",
               [&] { Checkpoint::open(dir.file("s")).verify_hashes(); });
}

TEST(Checkpoint, NothingIsWrittenIntoACompleteOne) {
  const TempDir dir;
  const SavedModel model;
  model.save(dir.path(), 4);
  expect_error(ErrorCode::kRun, "is a complete checkpoint", [&] { model.write(dir.path(), 0, 2); });
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

}  // namespace
}  // namespace slimexx::io
