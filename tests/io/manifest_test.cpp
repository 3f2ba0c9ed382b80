#include "io/checkpoint/manifest.h"

#include <nlohmann/json.hpp>

#include "io/folder_files.h"
#include "io/saved_model.h"
#include "io/temp_dir.h"

namespace slimexx::io {
namespace {

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
      {"/version", "3", "format version 3, but this program reads 1 to 2"},
      {"/version", "9007199254740993", "use the newer slimexx"},
      {"/version", "0", "format version 0"},
      {"/version", "1.0", "an integer"},
      {"/version", "18446744073709551615", "an integer"},
      {"/tensors", "{}", "\"tensors\" must be a list"},
      {"/tensors/0", "3", "missing"},
      {"/tensors/0/section", "1", "a string"},
      {"/tensors/0/dtype", "\"F33\"", "unknown dtype"},
      {"/tensors/0/export_dtype", "\"F33\"", "unknown export_dtype"},
      {"/tensors/0/export_dtype", "7", "a string"},
      {"/tensors/0/export_dtype", "\"I32\"", "F32 cannot be exported as I32"},
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
  SavedModel().save(dir.path(), 1);
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
  // A newer version is reported as newer even if the text has no content_hash.
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
    expect_error(ErrorCode::kInput, "missing from all shards", cover);
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

}  // namespace
}  // namespace slimexx::io
