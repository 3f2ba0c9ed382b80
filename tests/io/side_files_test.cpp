// Tests which files of a Hugging Face folder are copied as side files.
#include <gtest/gtest.h>

#include <filesystem>

#include "io/folder_files.h"
#include "io/temp_dir.h"
#include "slimexx/io/hf_folder.h"

namespace slimexx::io {
namespace {

TEST(CopySideFiles, WhatGoesAlong) {
  const TempDir from, to;
  const std::vector<std::string> side = {"LICENSE",
                                         "README.md",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "config.json",
                                         "generation_config.json",
                                         "merges.txt",
                                         "modeling_x.py",
                                         "special_tokens_map.json",
                                         "tokenizer.json",
                                         "tokenizer.model",
                                         "tokenizer_config.json",
                                         "vocab.json"};
  for (const auto& name : side) from.put(name, "content of " + name);
  for (const char* name :
       {"model.safetensors", "pytorch_model.bin", "pytorch_model.bin.index.json", "x.pt", "x.pth",
        "x.gguf", "model.safetensors.index.json", "manifest.json", ".gitattributes",
        "config.json.tmp.123", "tokenizer.json.incomplete", "MODEL.SAFETENSORS"}) {
    from.put(name, "no");
  }
  std::filesystem::create_directory(from.file("folder"));
  std::filesystem::create_symlink("nothing", from.file("dangling.json"));
  copy_side_files(from.path(), to.file("new"));
  EXPECT_EQ(list_files(to.file("new")), side);
  for (const auto& name : side)
    EXPECT_EQ(TempDir::read_bytes(to.file("new/" + name)), "content of " + name);
  EXPECT_NO_THROW(copy_side_files(from.path(), from.path()));
}

TEST(CopySideFiles, NamesThatAreNotUtf8StayBehind) {
  const TempDir from, to;
  from.put("config.json", "{}");
  from.put("x\xFF.json", "{}");
  copy_side_files(from.path(), to.path());
  EXPECT_EQ(list_files(to.path()), std::vector<std::string>{"config.json"});
  from.put("m\xFF.safetensors", "");
  expect_error(ErrorCode::kInput, "m\\xff.safetensors\n  hint: rename it",
               [&] { HfFolder::open(from.path()); });
}

TEST(CopySideFiles, WhatLoadingReadsMustBeAFile) {
  const TempDir from, to;
  std::filesystem::create_directory(from.file("tokenizer.json"));
  expect_error(ErrorCode::kInput, from.file("tokenizer.json"),
               [&] { copy_side_files(from.path(), to.path()); });
}

}  // namespace
}  // namespace slimexx::io
