#include "slimexx/data/sft.h"

#include <algorithm>

#include "data/data_fixture.h"
#include "slimexx/base/file.h"
#include "test_paths.h"

namespace slimexx::data {
namespace {

class Sft : public DataTest {
 protected:
  SftSet load(const std::string& content, const text::ChatTemplate& chat_template) {
    options_.prompt_data = write_file(content);
    return SftSet::load(options_, tokenizer_, &chat_template);
  }
  // The trained text of an example, with its pieces separated by "|".
  std::string learnt(const SftExample& example) {
    EXPECT_EQ(example.tokens, [&] {
      auto tokens = tokenizer_.encode(example.text);
      if (tokens.size() < example.tokens.size()) tokens.push_back(options_.eos_ids.at(0));
      return tokens;
    }());
    EXPECT_EQ(example.tokens.size(), example.loss_mask.size());
    std::string out;
    bool inside = false;
    for (size_t i = 0; i < example.tokens.size(); ++i) {
      if (inside && !example.loss_mask[i]) out += "|";
      inside = example.loss_mask[i] != 0;
      if (inside) out += tokenizer_.token_bytes(example.tokens[i]);
    }
    return out;
  }
  std::string learnt_of(const std::string& row, const text::ChatTemplate& chat_template) {
    const SftSet set = load(row + "\n", chat_template);
    EXPECT_EQ(set.size(), 1);
    return learnt(set.examples()[0]);
  }

  text::Tokenizer tokenizer_ = make_tokenizer();
  SftOptions options_;
};

const char* const kChat =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"1+1\"}, {\"role\": \"assistant\", "
    "\"content\": "
    "\"2 \u00e9\"}, {\"role\": \"user\", \"content\": \"2+2\"}, {\"role\": \"assistant\", "
    "\"content\": "
    "\"4\"}]}";
const char* const kMasked =
    "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
    "\"content\": \"b\", "
    "\"step_loss_mask\": 0}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", "
    "\"content\": \"d\"}]}";

text::ChatTemplate make_generation_template() {
  return text::ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}<|end|>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}never the same{% endif %}",
      "generation");
}

TEST_F(Sft, LearnsTheGenerationSpans) {
  const auto chat_template = make_generation_template();
  EXPECT_EQ(learnt_of(kChat, chat_template), "2 \u00e9<|end|>|4<|end|>");
  EXPECT_EQ(learnt_of(kMasked, chat_template), "d<|end|>");
}

TEST_F(Sft, LearnsWhatRepliesAddWithoutSpans) {
  EXPECT_EQ(learnt_of(kChat, make_template()), "2 \u00e9<|end|>|4<|end|>");
  EXPECT_EQ(learnt_of(kMasked, make_template()), "d<|end|>");
  EXPECT_EQ(learnt_of("{\"prompt\": \"1+1\", \"response\": \"2\"}", make_template()), "2<|end|>");
}

TEST_F(Sft, RefusesATemplateThatRewritesItsPast) {
  const auto only_last = text::ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if loop.last %}!{% endif %}{% "
      "endfor %}"
      "{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "t");
  const Error error = error_of([&] { learnt_of(kChat, only_last); });
  EXPECT_EQ(error.code(), ErrorCode::kInput);
  EXPECT_NE(error.message().find("message 1"), std::string::npos) << error.what();
  EXPECT_NE(error.hint().find("{% generation %}"), std::string::npos);
  EXPECT_NE(error.where().find("rows.jsonl:1"), std::string::npos) << error.what();
}

TEST_F(Sft, JoinsPairsWithoutATemplate) {
  options_.apply_chat_template = false;
  options_.eos_ids = {*tokenizer_.token_to_id("<|end|>"), *tokenizer_.token_to_id("<|user|>")};
  const std::string row = "{\"prompt\": \"1+1=\", \"response\": \"2\"}";
  EXPECT_EQ(learnt_of(row, make_template()), "2<|end|>");
  const SftSet set = load(row + "\n" + row, make_template());
  EXPECT_EQ(set.examples()[1].tokens.size(), 6u);
  EXPECT_EQ(set.examples()[1].loss_mask, (std::vector<uint8_t>{0, 0, 0, 0, 1, 1}));
  EXPECT_EQ(
      error_of([&] { load("{\"prompt\": [], \"response\": \"2\"}", make_template()); }).code(),
      ErrorCode::kInput);
}

TEST_F(Sft, DropsWhatIsTooLongAndRefusesWhatTeachesNothing) {
  options_.apply_chat_template = false;
  options_.max_len = 3;
  const std::string rows =
      "{\"prompt\": \"a\", \"response\": \"bc\"}\n{\"prompt\": \"a\", \"response\": \"bcd\"}\n";
  const SftSet set = load(rows, make_template());
  EXPECT_EQ(set.size(), 1);
  EXPECT_EQ(set.num_dropped(), 1);
  EXPECT_EQ(set.content_hash().size(), 32u);
  EXPECT_EQ(error_of([&] {
              load("{\"prompt\": \"abcd\", \"response\": \"\"}", make_template());
            }).message(),
            "there is nothing to learn in the row");
  options_.apply_chat_template = true;
  EXPECT_EQ(error_of([&] {
              load("{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}", make_template());
            }).message(),
            "there is nothing to learn in the row");
}

TEST_F(Sft, RefusesRowsThatTeachToEndAndNothingElse) {
  const std::vector<std::string> refused_chats = {
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": " \n"}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": null}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": [{"type": "text", "text": ""}]}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [], "name": "n"}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "b"}, {"role": "assistant", "content": ""}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}, {"role": "assistant", "content": ""}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]})",
      R"({"messages": [{"role": "user", "content": "a"}]})",
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", "step_loss_mask": 0}]})",
      R"({"prompt": "a", "response": ""})",
      R"({"prompt": [{"role": "user", "content": "x"}], "response": ""})"};
  const std::string good = R"({"prompt": "a", "response": "b"})";
  options_.eos_ids = {*tokenizer_.token_to_id("<|end|>")};
  const auto refusal = [&](const std::string& row, const text::ChatTemplate& chat_template) {
    return std::string(error_of([&] { load(good + "\n" + row + "\n", chat_template); }).what());
  };
  for (const std::string& row : refused_chats) {
    for (const auto& chat_template : {make_template, make_generation_template}) {
      const std::string error = refusal(row, chat_template());
      EXPECT_NE(error.find("nothing to learn in the row"), std::string::npos) << row << error;
      EXPECT_NE(error.find("rows.jsonl:2"), std::string::npos) << row << error;
    }
  }
  // The template adds an end token, with white space after it.
  const auto spaced = text::ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content if m.role == 'user' }}<|end|>\n{% "
      "endfor "
      "%}{% if add_generation_prompt %}<|assistant|>{% endif %}",
      "spaced");
  EXPECT_NE(error_of([&] { load(good, spaced); }).message().find("nothing to learn in the row"),
            std::string::npos);
  options_.apply_chat_template = false;
  for (const char* row :
       {R"({"prompt": "a", "response": ""})", R"({"prompt": "a", "response": "<|end|>"})",
        R"({"prompt": "", "response": "a"})"}) {
    const std::string error = refusal(row, make_template());
    EXPECT_NE(error.find("nothing to learn in the row"), std::string::npos) << row << error;
    EXPECT_NE(error.find("rows.jsonl:2"), std::string::npos) << error;
  }
}

TEST_F(Sft, TakesTurnsThatCallThinkOrAreLeftOut) {
  options_.eos_ids = {*tokenizer_.token_to_id("<|end|>")};
  const auto calls = text::ChatTemplate::parse(
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{{ m.reasoning_content }}{% for c in m.tool_calls or [] %}{{ c.function.name "
      "}}"
      "{% endfor %}<|end|>{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "calls");
  EXPECT_EQ(
      learnt_of(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "f", "arguments": {}}}]}]})",
          calls),
      "f<|end|>");
  EXPECT_EQ(
      learnt_of(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "reasoning_content": "t"}]})",
          calls),
      "t<|end|>");
  EXPECT_EQ(
      learnt_of(
          R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "", "step_loss_mask": 0}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]})",
          make_generation_template()),
      "c<|end|>");
  options_.apply_chat_template = false;
  EXPECT_EQ(learnt_of(R"({"prompt": "a", "response": " "})", make_template()), " <|end|>");
  const Error error = error_of(
      [&] { load(R"({"messages": [{"role": "user", "content": "a"}]})", make_template()); });
  EXPECT_NE(error.message().find("no chat template is applied"), std::string::npos);
  EXPECT_NE(error.hint().find("data.apply_chat_template: true"), std::string::npos);
}

// GLM ends an assistant's turn with the token that begins the next; its generation_config.json
// names these tokens as eos ids. The tokenizer of this test has bytes for all other text.
TEST_F(Sft, LearnsToEndATurnOnGlmTemplates) {
  tokenizer_ = text::Tokenizer::parse(
      text::make_byte_level_tokenizer_json({"<|endoftext|>", "[gMASK]", "<sop>", "<|system|>",
                                            "<|user|>", "<|assistant|>", "<|observation|>"}),
      "glm");
  for (const char* eos : {"<|endoftext|>", "<|user|>", "<|observation|>"})
    options_.eos_ids.push_back(*tokenizer_.token_to_id(eos));
  const auto glm = text::ChatTemplate::parse(
      read_text_file(test_data_path("golden/chat_templates/GLM-4.6.jinja")), "GLM-4.6");
  const std::string thought = "\n<think></think>\n";
  EXPECT_EQ(learnt_of(kChat, glm), thought + "2 \u00e9<|user|>|" + thought + "4<|endoftext|>");
  EXPECT_EQ(learnt_of("{\"prompt\": \"1+1\", \"response\": \"2\"}", glm),
            thought + "2<|endoftext|>");
  EXPECT_EQ(learnt_of(kMasked, glm), thought + "d<|endoftext|>");
  const std::string tool =
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
          {"role": "tool", "content": "c"}, {"role": "assistant", "content": "d"},
          {"role": "user", "content": "e"}]})";
  std::string line = tool;
  line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
  EXPECT_EQ(learnt_of(line, glm), thought + "b<|observation|>|" + thought + "d<|user|>|");
}

TEST_F(Sft, LeavesATurnThatItsTemplateEndsAlone) {
  options_.eos_ids = {*tokenizer_.token_to_id("<|end|>")};
  EXPECT_EQ(learnt_of(kChat, make_template()), "2 \u00e9<|end|>|4<|end|>");
  EXPECT_EQ(learnt_of(kMasked, make_template()), "d<|end|>");
  EXPECT_EQ(learnt_of(kChat, make_generation_template()), "2 \u00e9<|end|>|4<|end|>");
  const auto outside = text::ChatTemplate::parse(  // the turn's end is not in its block
      "{% for m in messages %}<|{{ m.role }}|>{% if m.role == 'assistant' %}{% generation %}"
      "{{ m.content }}{% endgeneration %}<|end|>{% else %}{{ m.content }}{% endif %}{% endfor %}",
      "outside");
  EXPECT_EQ(learnt_of(kChat, outside), "2 \u00e9<|end|>|4<|end|>");
  // Nothing is appended to a last turn that is not trained.
  const SftSet set = load(
      R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, )"
      R"({"role": "user", "content": "c"}, {"role": "assistant", "content": "d", "step_loss_mask": 0}]})"
      "\n",
      make_template());
  EXPECT_EQ(set.examples()[0].tokens, tokenizer_.encode(set.examples()[0].text));
}

TEST_F(Sft, MasksRealTemplates) {
  const auto load_template = [&](const std::string& name) {
    std::ifstream file(test_data_path("golden/chat_templates/" + name));
    const std::string source((std::istreambuf_iterator<char>(file)), {});
    return text::ChatTemplate::parse(source, name);
  };
  tokenizer_ = text::Tokenizer::load(real_tokenizer_path("qwen3"));
  EXPECT_EQ(learnt_of(kChat, load_template("Qwen-Qwen2.5-7B-Instruct.jinja")),
            "2 \u00e9<|im_end|>\n|4<|im_end|>\n");
  EXPECT_EQ(learnt_of("{\"prompt\": \"1+1\", \"response\": \"2\"}",
                      load_template("Qwen-Qwen3-0.6B.jinja")),
            "<think>\n\n</think>\n\n2<|im_end|>\n");
  options_.tool_key = "tools";
  // The template that the documentation recommends renders the same text as TRL's.
  const auto trl = load_template("trl-qwen3_training.jinja");
  const auto own = load_template("../../../configs/chat_templates/qwen3-training.jinja");
  EXPECT_EQ(learnt_of(kChat, own),
            "<think>\n\n</think>\n\n2 \u00e9<|im_end|>\n|<think>\n\n</think>\n\n4<|im_end|>\n");
  for (
      const std::string& line : {
          std::string(kChat),
          std::string(
              R"({"messages": [{"role": "system", "content": "s"}, )"
              R"({"role": "user", "content": "a"}, )"
              R"({"role": "assistant", "content": "<think>\nt\n</think>\n\nb"}, )"
              R"({"role": "system", "content": "again"}, {"role": "user", "content": "c"}, )"
              R"({"role": "assistant", "content": "\nd", "reasoning_content": "r\n"}]})"),
          std::string(
              R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], )"
              R"("messages": [{"role": "user", "content": "a"}, {"role": "assistant", )"
              R"("content": "b", "tool_calls": [{"type": "function", "function": {"name": "f", )"
              R"("arguments": {"x": "é"}}}, {"name": "g", "arguments": "{}"}]}, )"
              R"({"role": "tool", "content": "1"}, {"role": "tool", "content": "2"}, )"
              R"({"role": "assistant", "content": "", "tool_calls": [{"type": "function", )"
              R"("function": {"name": "f", "arguments": {}}}]}, {"role": "tool", "content": "3"}, )"
              R"({"role": "assistant", "content": "d"}]})"),
      }) {
    EXPECT_EQ(load(line + "\n", own).examples().at(0).text,
              load(line + "\n", trl).examples().at(0).text);
    EXPECT_EQ(learnt_of(line, own), learnt_of(line, trl));
  }
  // Qwen3's own template drops the thinking of earlier turns.
  EXPECT_THROW(learnt_of(kChat, load_template("Qwen-Qwen3-0.6B.jinja")), Error);
}

}  // namespace
}  // namespace slimexx::data
