// Temporary files, a byte-level tokenizer and a chat template, for tests of data sets.
#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "data/json_lines.h"
#include "slimexx/base/error.h"
#include "slimexx/base/json.h"
#include "slimexx/text/chat_template.h"
#include "slimexx/text/tokenizer.h"

namespace slimexx::data {

class DataTest : public ::testing::Test {
 protected:
  DataTest() {
    directory_ = std::filesystem::temp_directory_path() /
                 ("slimexx_data_" + std::to_string(getpid()) + "_" +
                  ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  ~DataTest() override { std::filesystem::remove_all(directory_); }

  std::string write_file(const std::string& content, const std::string& name = "rows.jsonl") {
    const std::string path = (directory_ / name).string();
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }

  static text::Tokenizer make_tokenizer() {
    return text::Tokenizer::parse(
        text::make_byte_level_tokenizer_json({"<|user|>", "<|assistant|>", "<|end|>"}), "test");
  }

  // The Error that a call throws.
  template <class Call>
  static Error error_of(Call call) {
    try {
      call();
    } catch (const Error& error) {
      return error;
    }
    ADD_FAILURE() << "no error";
    return Error(ErrorCode::kRun, "none");
  }

  std::filesystem::path directory_;
};

inline text::ChatTemplate make_template() {
  return text::ChatTemplate::parse(
      "{% if tools %}[{{ tools | length }} tools]{% endif %}"
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'assistant' %}<|end|>"
      "{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>"
      "{% if think is defined and think %}<think>{% endif %}{% endif %}",
      "test");
}

}  // namespace slimexx::data
