#include "rl/checkpoint/export_target.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "io/temp_dir.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/io/owned_files.h"
#include "slimexx/rl/export.h"

namespace slimexx::rl {
namespace {

namespace fs = std::filesystem;
using io::TempDir;

class ExportTarget : public testing::Test {
 protected:
  ExportTarget() {
    fs::create_directory(dir_.file("model"));
    for (const char* name : {"model/config.json", "model/tokenizer.json", "model/merges.txt"})
      dir_.put(name, "{\"hidden_size\": 8}");
  }
  // Makes a folder like an earlier export of the model.
  void put_export(const std::string& name, const std::string& weights = "old") const {
    fs::create_directories(dir_.file(name));
    for (const char* file : {"/config.json", "/tokenizer.json", "/merges.txt"})
      dir_.put(name + file, "{\"hidden_size\": 8}");
    dir_.put(name + "/model.safetensors", weights);
  }
  void expect_accepted(const std::string& name) const {
    EXPECT_NO_THROW(check_export_target(dir_.file(name), dir_.file("model"))) << name;
  }
  void expect_refused(const std::string& name, const std::string& words) const {
    io::expect_error(ErrorCode::kUsage, words,
                     [&] { check_export_target(dir_.file(name), dir_.file("model")); });
  }
  NameTest is_own() const { return io::exported_files(dir_.file("model")); }
  const TempDir dir_;
};

TEST_F(ExportTarget, IsNewOrEmptyOrAnEarlierExport) {
  expect_accepted("absent");
  expect_accepted("absent/deep/");
  fs::create_directory(dir_.file("empty"));
  expect_accepted("empty");
  put_export("earlier");
  expect_accepted("earlier");
  expect_accepted("earlier/");
  fs::remove(dir_.file("earlier/model.safetensors"));
  for (const char* name : {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
                           "model.safetensors.index.json", "config.json.tmp.77"})
    dir_.put(std::string("earlier/") + name, "x");
  expect_accepted("earlier");
  fs::create_directory_symlink("earlier", dir_.file("link"));
  expect_accepted("link");
}

TEST_F(ExportTarget, ThatHoldsAnythingElseIsRefused) {
  for (const char* name :
       {"notes.md", "adapter.bin", "pytorch_model.bin", "adapter_model.safetensors", "vocab.json",
        "model-1-of-2.safetensors", "model-00001-of-00002.safetensors.bak", "Model.safetensors",
        "model.safetensors.2", ".gitattributes", "config.json.orig", "README.md", "optimizer.pt",
        "shard-00000-of-00001.safetensors", "manifest.json", "generation_config.json"}) {
    put_export("target");
    dir_.put(std::string("target/") + name, "precious");
    expect_refused("target", std::string("holds \"") + name + "\"");
    fs::remove_all(dir_.file("target"));
  }
  put_export("target");
  fs::create_directory(dir_.file("target/empty"));
  expect_refused("target", "holds \"empty\"");
  fs::remove(dir_.file("target/empty"));
  fs::remove(dir_.file("target/merges.txt"));
  fs::create_symlink("../model/merges.txt", dir_.file("target/merges.txt"));
  expect_refused("target", "holds \"merges.txt\"");
  fs::remove(dir_.file("target/merges.txt"));
  dir_.put("target/config.json", "{\"hidden_size\": 16}");
  expect_refused("target", "holds another model: hidden_size is 16");
  fs::remove(dir_.file("target/config.json"));
  expect_refused("target", "no config.json");
  dir_.put("file", "x");
  expect_refused("file", "is a file");
  fs::create_symlink("nowhere", dir_.file("dangling"));
  expect_refused("dangling", "broken link");
  fs::create_directories(dir_.file("next.new/x"));
  expect_refused("next", "next.new, which holds \"x\"");
}

TEST_F(ExportTarget, IsReplacedAsAWhole) {
  put_export("target");
  put_export("target.new", "new");
  fs::remove(dir_.file("target.new/merges.txt"));
  put_export_in_place(dir_.file("target.new"), dir_.file("target"), is_own());
  EXPECT_EQ(TempDir::read_bytes(dir_.file("target/model.safetensors")), "new");
  EXPECT_FALSE(path_exists(dir_.file("target/merges.txt")));
  for (const char* gone : {"target.new", "target.old", "target-2"})
    EXPECT_FALSE(path_exists(dir_.file(gone))) << gone;
}

TEST_F(ExportTarget, ThatGotOtherFilesMeanwhileStays) {
  fs::create_directories(dir_.file("target/sub"));
  fs::create_directories(dir_.file("target-2"));
  put_export("target.new", "new");
  io::expect_error(
      ErrorCode::kEnvironment, "the export was written to " + dir_.file("target-3"),
      [&] { put_export_in_place(dir_.file("target.new"), dir_.file("target"), is_own()); });
  EXPECT_TRUE(path_exists(dir_.file("target/sub")));
  EXPECT_EQ(TempDir::read_bytes(dir_.file("target-3/model.safetensors")), "new");
}

TEST_F(ExportTarget, FolderThatIsWrittenFirstIsOwn) {
  put_export("first");
  dir_.put("first/model.safetensors.incomplete", "x");
  dir_.put("first/tokenizer.json.tmp.77", "x");
  { const UnfinishedFolder folder(dir_.file("first"), is_own()); }
  EXPECT_FALSE(path_exists(dir_.file("first")));
  fs::create_directories(dir_.file("first/sub"));
  io::expect_error(ErrorCode::kEnvironment, "holds \"sub\"",
                   [&] { const UnfinishedFolder folder(dir_.file("first"), is_own()); });
  EXPECT_TRUE(path_exists(dir_.file("first/sub")));
}

}  // namespace
}  // namespace slimexx::rl
