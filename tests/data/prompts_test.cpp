#include "slimexx/data/prompts.h"

#include <fmt/core.h>

#include "data/data_fixture.h"
#include "slimexx/base/thread_pool.h"
#include "test_paths.h"

namespace slimexx::data {
namespace {

class Prompts : public DataTest {
 protected:
  PromptSet load(const std::string& content) {
    options_.prompt_data = write_file(content);
    return PromptSet::load(options_, &tokenizer_, &template_);
  }
  Error load_error(const std::string& content) {
    return error_of([&] { load(content); });
  }
  // Expects an error that names the line and contains `part`.
  void expect_error(const std::string& content, int line, const std::string& part) {
    const Error error = load_error(content);
    EXPECT_EQ(error.code(), ErrorCode::kInput) << content;
    EXPECT_NE(error.where().find("rows.jsonl:" + std::to_string(line)), std::string::npos)
        << content << ": " << error.what();
    EXPECT_NE(error.message().find(part), std::string::npos) << content << ": " << error.what();
  }

  text::Tokenizer tokenizer_ = make_tokenizer();
  text::ChatTemplate template_ = make_template();
  PromptOptions options_;
};

TEST_F(Prompts, TokenizesTextAsItStands) {
  const PromptSet set = load(
      "{\"prompt\": \"a<|end|>\", \"label\": \"x\"}\n\n{\"prompt\": \"b\", \"label\": 4.0, \"k\": "
      "[1], "
      "\"tools\": null}\n");
  ASSERT_EQ(set.size(), 2);
  const Prompt& first = set.prompts()[0];
  EXPECT_EQ(first.text, "a<|end|>");
  ASSERT_EQ(first.tokens.size(), 2u) << "special tokens are parsed";
  EXPECT_EQ(first.tokens.unpack()[1], tokenizer_.token_to_id("<|end|>"));
  EXPECT_EQ(first.metadata, nullptr);
  const Prompt& second = set.prompts()[1];
  EXPECT_EQ(second.index, 1);
  EXPECT_EQ(second.label, "4.0");
  EXPECT_TRUE(set.where(second).ends_with(":3")) << set.where(second);
  EXPECT_EQ(second.metadata->dump(), "{\"k\":[1],\"tools\":null}");
  EXPECT_EQ(set.num_dropped(), 0);
}

TEST_F(Prompts, LabelsOfAnyTypeBecomeText) {
  const PromptSet set = load(
      "{\"prompt\": \"a\", \"label\": 7}\n{\"prompt\": \"a\", \"label\": null}\n"
      "{\"prompt\": \"a\", \"label\": [1, \"b\"]}\n{\"prompt\": \"a\", \"label\": true}\n");
  EXPECT_EQ(set.prompts()[0].label, "7");
  EXPECT_EQ(set.prompts()[1].label, "");
  EXPECT_EQ(set.prompts()[2].label, "[\"1\",\"b\"]") << "a list of accepted answers";
  EXPECT_EQ(set.prompts()[3].label, "true");
  // Floats as Python reads and prints them.
  EXPECT_EQ(load("{\"prompt\": \"a\", \"label\": 0.10000000000000000001}").prompts()[0].label,
            "0.1");
  EXPECT_EQ(load("{\"prompt\": \"a\", \"label\": [[1], {\"b\": 2}]}").prompts()[0].label,
            "[[1],{\"b\":2}]");
  options_.label_key = "";
  EXPECT_EQ(load("{\"prompt\": \"a\"}").prompts()[0].label, "");
  EXPECT_EQ(load("{\"prompt\": \"a\", \"label\": 1}").prompts()[0].metadata->dump(),
            "{\"label\":1}");
}

TEST_F(Prompts, RendersMessagesToolsAndKwargs) {
  options_.apply_chat_template = true;
  const std::string rows =
      "{\"prompt\": \"hi\", \"label\": \"\"}\n"
      "{\"prompt\": [{\"role\": \"user\", \"content\": \"hi\"}], \"label\": \"\"}\n"
      "{\"prompt\": \"hi\", \"label\": \"\", \"tools\": [{}, {}]}\n"
      "{\"prompt\": \"hi\", \"label\": \"\", \"tools\": \"[{}]\"}\n";
  const PromptSet plain = load(rows);
  EXPECT_EQ(plain.prompts()[0].text, "<|user|>hi<|assistant|>");
  EXPECT_EQ(plain.prompts()[0].tokens.size(), 4u);
  EXPECT_EQ(plain.prompts()[1].text, "<|user|>hi<|assistant|>");
  EXPECT_EQ(plain.prompts()[2].text, "[2 tools]<|user|>hi<|assistant|>");
  EXPECT_EQ(plain.prompts()[3].text, "[1 tools]<|user|>hi<|assistant|>");
  options_.apply_chat_template_kwargs = std::make_shared<const Json>(Json{{"think", true}});
  EXPECT_EQ(load(rows).prompts()[0].text, "<|user|>hi<|assistant|><think>");
  options_.apply_chat_template_kwargs = std::make_shared<const Json>(Json{{"messages", 1}});
  EXPECT_EQ(load_error(rows).code(), ErrorCode::kUsage);
  options_.apply_chat_template_kwargs = std::make_shared<const Json>(Json(3));
  EXPECT_EQ(load_error(rows).code(), ErrorCode::kUsage);
}

TEST_F(Prompts, TakesRowsOfTokens) {
  options_.label_key = "";
  const PromptSet set = load("{\"tokens\": [104, 105], \"id\": 1}");
  EXPECT_EQ(set.prompts()[0].tokens.unpack(), (std::vector<text::TokenId>{104, 105}));
  EXPECT_EQ(set.prompts()[0].text, tokenizer_.decode(set.prompts()[0].tokens.unpack()));
  EXPECT_EQ(set.prompts()[0].metadata->dump(), "{\"id\":1}");
  const PromptSet bare = PromptSet::load(options_, nullptr, nullptr);
  EXPECT_EQ(bare.prompts()[0].text, "");
  for (const char* bad :
       {"{\"tokens\": [-1]}", "{\"tokens\": [1.5]}", "{\"tokens\": [\"1\"]}", "{\"tokens\": 1}",
        "{\"tokens\": [99999]}", "{\"tokens\": [18446744073709551615]}", "{\"tokens\": []}"}) {
    EXPECT_EQ(load_error(bad).code(), ErrorCode::kInput) << bad;
  }
  EXPECT_EQ(error_of([&] {
              options_.prompt_data = write_file("{\"prompt\": \"a\"}");
              PromptSet::load(options_, nullptr, nullptr);
            }).code(),
            ErrorCode::kUsage);
}

TEST_F(Prompts, DropsAndCountsWhatIsTooLong) {
  options_.rollout_max_prompt_len = 3;
  const std::string rows =
      "{\"prompt\": \"abc\", \"label\": 1}\n{\"prompt\": \"abcd\", \"label\": 2}\n"
      "{\"prompt\": \"abc\", \"label\": 3}\n";
  const PromptSet set = load(rows);
  ASSERT_EQ(set.size(), 2) << "equal prompts stay";
  EXPECT_EQ(set.num_dropped(), 1);
  EXPECT_EQ(set.prompts()[1].index, 2);
  const std::string hash = set.content_hash();
  options_.rollout_max_prompt_len = 4;
  EXPECT_NE(load(rows).content_hash(), hash);
  options_.rollout_max_prompt_len = 2;
  EXPECT_NE(load_error(rows).message().find("all 3 prompts"), std::string::npos);
  EXPECT_EQ(load_error(rows).hint(), "raise rollout.rollout_max_prompt_len");
  options_.max_prompt_len_key = "eval.eval_max_prompt_len";
  EXPECT_EQ(load_error(rows).hint(), "raise eval.eval_max_prompt_len");
}

TEST_F(Prompts, StopsAtABadLine) {
  const std::string good = "{\"prompt\": \"a\", \"label\": \"b\"}\n";
  expect_error(good + "{\"prompt\": \"a\"}\n", 2, "no key 'label'");
  expect_error(good + good + "{\"label\": \"a\", \"question\": 1}\n", 3, "no key 'prompt'");
  expect_error(good + "\n{\"prompt\": \"a\",\n", 3, "JSON");
  expect_error(good + "\"a\"\n", 2, "not a JSON object");
  expect_error(good + "{\"prompt\": \"a\", \"prompt\": \"b\", \"label\": 1}\n", 2, "prompt");
  expect_error(good + "{\"prompt\": 5, \"label\": 1}\n", 2, "'prompt' is number");
  expect_error(good + "{\"prompt\": \"\", \"label\": 1}\n", 2, "empty");
  expect_error(good + "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}], \"label\": 1}\n", 2,
               "not text");
  EXPECT_NE(load_error("{\"label\": \"a\", \"question\": 1}\n").hint().find("'question'"),
            std::string::npos);
  const std::string wide = "123456789012345678901234567890";
  expect_error("{\"prompt\": \"a\", \"label\": " + wide + "}\n", 1, wide);
  EXPECT_NE(load_error("{\"prompt\": [], \"label\": 1}\n").hint().find("apply_chat_template"),
            std::string::npos);
  for (const char* none : {"5", "null", "{}"}) {
    const std::string row = fmt::format("{{\"prompt\": {}, \"label\": 1}}\n", none);
    EXPECT_EQ(load_error(row).hint(), "write text there, in quotes") << none;
  }
  options_.apply_chat_template = true;
  expect_error("{\"prompt\": [], \"label\": 1}\n", 1, "empty list");
  expect_error("{\"prompt\": [{\"content\": \"a\"}], \"label\": 1}\n", 1,
               "message 0 of 'prompt' has no role");
  expect_error("{\"prompt\": \"a\", \"label\": 1, \"tools\": \"[\"}\n", 1, "JSON");
  expect_error("{\"prompt\": \"a\", \"label\": 1, \"tools\": {}}\n", 1, "list of tools");
  expect_error("{\"prompt\": \"a\", \"label\": 1, \"tools\": \"[" + wide + "]\"}\n", 1, wide);
  EXPECT_EQ(load_error("\n \n").code(), ErrorCode::kInput);
}

TEST_F(Prompts, NamesTheRowWhoseMetadataAreRefused) {
  options_.check_metadata = [](const std::shared_ptr<const Json>& metadata) {
    if (metadata && metadata->contains("bad")) throw Error(ErrorCode::kInput, "bad metadata");
  };
  const std::string good = "{\"prompt\": \"a\", \"label\": 1}\n";
  EXPECT_EQ(load(good).size(), 1);
  expect_error(good + "{\"prompt\": \"a\", \"label\": 1, \"bad\": 0}\n", 2, "bad metadata");
}

TEST_F(Prompts, NamesTheRowWhenTheTemplateFails) {
  options_.apply_chat_template = true;
  template_ =
      text::ChatTemplate::parse("{{ raise_exception('no ' + messages[0].content) }}", "t.jinja");
  const Error error = load_error("{\"prompt\": \"dice\", \"label\": 1}\n");
  EXPECT_NE(std::string(error.what()).find("no dice"), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("rows.jsonl:1"), std::string::npos) << error.what();
}

TEST_F(Prompts, IsTheSameOnAnyNumberOfThreads) {
  std::string content;
  for (int i = 0; i < 300; ++i)
    content += "{\"prompt\": \"p" + std::to_string(i * i) + "\", \"label\": 1}\n";
  set_num_threads(1);
  const PromptSet serial = load(content);
  set_num_threads(4);
  const PromptSet parallel = load(content);
  EXPECT_EQ(serial.content_hash(), parallel.content_hash());
  for (size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(serial.prompts()[i].tokens, parallel.prompts()[i].tokens) << i;
  }
}

TEST_F(Prompts, SourceDealsThemOutAndResumes) {
  std::string content;
  for (int i = 0; i < 10; ++i)
    content += "{\"prompt\": \"p\", \"label\": " + std::to_string(i) + "}\n";
  options_.rollout_shuffle = true;
  const auto set = std::make_shared<const PromptSet>(load(content));
  PromptSource source(set, options_);
  std::string drawn;
  for (const Prompt* prompt : source.draw(12)) drawn += prompt->label;
  EXPECT_EQ(drawn, "732856940181");
  PromptSource resumed(set, options_);
  resumed.restore(source.cursor());
  EXPECT_EQ(source.draw(9), resumed.draw(9));
  const auto changed =
      std::make_shared<const PromptSet>(load(content + "{\"prompt\": \"p\", \"label\": 9}\n"));
  PromptSource other(changed, options_);
  EXPECT_EQ(error_of([&] { other.restore(source.cursor()); }).code(), ErrorCode::kInput);
}

TEST_F(Prompts, ReadsRealPrompts) {
  std::ifstream file(test_data_path("golden/chat_templates/Qwen-Qwen3-0.6B.jinja"));
  const std::string source((std::istreambuf_iterator<char>(file)), {});
  const auto chat_template = text::ChatTemplate::parse(source, "qwen3");
  const auto tokenizer = text::Tokenizer::load(real_tokenizer_path("qwen3"));
  options_.prompt_data = test_data_path("golden/math/aime-2024.jsonl");
  options_.apply_chat_template = true;
  const PromptSet set = PromptSet::load(options_, &tokenizer, &chat_template);
  EXPECT_EQ(set.size(), 30);
  for (const Prompt& prompt : set.prompts()) {
    EXPECT_TRUE(prompt.text.starts_with("<|im_start|>user\n")) << prompt.index;
    EXPECT_TRUE(prompt.text.ends_with("<|im_end|>\n<|im_start|>assistant\n")) << prompt.index;
    EXPECT_EQ(prompt.tokens.unpack().front(), 151644) << prompt.index;
    EXPECT_EQ(tokenizer.decode(prompt.tokens.unpack()), prompt.text) << prompt.index;
    EXPECT_FALSE(prompt.label.empty());
  }
}

TEST(PackedTokens, KeepsIds) {
  const std::vector<text::TokenId> ids = {0, 1, 127, 128, 16383, 16384, 151551, 2097152, INT32_MAX};
  EXPECT_EQ(PackedTokens(ids).unpack(), ids);
  EXPECT_EQ(PackedTokens(ids).size(), ids.size());
  EXPECT_TRUE(PackedTokens().unpack().empty());
}

}  // namespace
}  // namespace slimexx::data
