// Tests the templates and special tokens of a checkpoint folder.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/text/chat_template.h"
#include "test_paths.h"

namespace slimexx::text {
namespace {

TEST(TemplateFolders, LoadsFromCheckpointFolders) {
  const std::string folder = testing::TempDir() + "slimexx_chat_template";
  make_directories(folder);
  std::remove((folder + "/chat_template.jinja").c_str());
  const auto load_error = [&] {
    try {
      ChatTemplate::load(folder);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  write_file_atomic(folder + "/tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_NE(load_error().find("no chat template"), std::string::npos);
  write_file_atomic(
      folder + "/tokenizer_config.json",
      R"({"chat_template": "{{ bos_token }}{{ eos_token }}{{ x }}", "bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": null})");
  EXPECT_EQ(ChatTemplate::load(folder).render({{"x", 1}}).text, "<s></s>1");
  EXPECT_EQ(ChatTemplate::load(folder).render({{"x", 1}, {"bos_token", "B"}}).text, "B</s>1");
  write_file_atomic(
      folder + "/tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]})");
  EXPECT_EQ(ChatTemplate::load(folder).render(Json::object()).text, "d");
  write_file_atomic(folder + "/tokenizer_config.json",
                    R"({"chat_template": [{"name": "rag", "template": "r"}, 3]})");
  EXPECT_NE(load_error().find("default"), std::string::npos);
  write_file_atomic(folder + "/chat_template.jinja", "own\n{{ x.y.z }}");
  try {
    ChatTemplate::load(folder).render(Json::object());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("chat_template.jinja: line 2"), std::string::npos)
        << error.what();
  }
}

// The expected texts are those of transformers 5.24 (apply_chat_template).
TEST(TemplateFolders, ChoosesAmongTemplatesAndTakesSpecialTokensAsTransformers) {
  const std::string folder = testing::TempDir() + "slimexx_template_folders";
  std::ifstream cases(test_data_path("text/jinja/template_folders.jsonl"));
  int num_cases = 0;
  for (std::string line; std::getline(cases, line); ++num_cases) {
    const Json folder_case = parse_json(line, "template_folders.jsonl");
    SCOPED_TRACE(folder_case["name"].get<std::string>());
    std::filesystem::remove_all(folder);
    for (const auto& [name, content] : folder_case["files"].items()) {
      const auto path = std::filesystem::path(folder) / name;
      make_directories(path.parent_path().string());
      write_file_atomic(path.string(), content.get<std::string>());
    }
    EXPECT_EQ(ChatTemplate::load(folder).render(folder_case["variables"]).text,
              folder_case["text"].get<std::string>());
  }
  EXPECT_GT(num_cases, 40);
}

TEST(TemplateFolders, RefusesAChoiceThatThereIsNot) {
  const std::string folder = testing::TempDir() + "slimexx_named_templates";
  make_directories(folder);
  write_file_atomic(
      folder + "/tokenizer_config.json",
      R"({"chat_template": [{"name": "rag", "template": "r"}, {"name": "tool_use", "template": "{% if %}"}]})");
  const ChatTemplate named = ChatTemplate::load(folder);
  const auto error_with = [&](const Json& variables) {
    try {
      return named.render(variables).text;
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(error_with({{"chat_template", "rag"}}), "r");
  EXPECT_NE(error_with(Json::object()).find("no chat template is named \"default\""),
            std::string::npos);
  EXPECT_NE(error_with(Json::object()).find("\"rag\", \"tool_use\""), std::string::npos);
  EXPECT_NE(error_with({{"chat_template", "rga"}}).find("no chat template is named \"rga\""),
            std::string::npos);
  EXPECT_NE(error_with({{"tools", Json::array()}}).find("line 1"), std::string::npos);
  EXPECT_EQ(ChatTemplate::find(testing::TempDir()), nullptr);
}

}  // namespace
}  // namespace slimexx::text
