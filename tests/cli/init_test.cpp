#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "slimexx/io/hf_folder.h"
#include "test_paths.h"

namespace slimexx::cli {
namespace {

constexpr const char* kConfig =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 16,
"intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
"head_dim": 8, "vocab_size": 260, "max_position_embeddings": 128, "rms_norm_eps": 1e-6,
"rope_theta": 10000.0, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
"hidden_act": "silu"})";

Finished init(const Folder& folder, const std::string& save, std::vector<std::string> more) {
  std::vector<std::string> arguments = {"init", "--model-config", folder.put("qwen3.json", kConfig),
                                        "--save", folder / save};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return run_slimexx(arguments);
}

std::string weights(const Folder& folder, const std::string& save) {
  return read_bytes(folder / (save + "/model.safetensors"));
}

TEST(Init, WeightsAreAFunctionOfTheSeed) {
  const Folder folder;
  ASSERT_EQ(init(folder, "a", {"--seed", "7"}).status, 0);
  ASSERT_EQ(init(folder, "b", {"--seed", "7"}).status, 0);
  ASSERT_EQ(init(folder, "c", {"--seed", "8"}).status, 0);
  EXPECT_EQ(weights(folder, "a"), weights(folder, "b"));
  EXPECT_NE(weights(folder, "a"), weights(folder, "c"));
  EXPECT_EQ(read_bytes(folder / "a/config.json"), kConfig);
  const io::SafetensorsFile file(folder / "a/model.safetensors");
  EXPECT_EQ(file.find("model.embed_tokens.weight")->dtype, tensor::DType::kBF16);
  EXPECT_EQ(file.find("lm_head.weight"), nullptr) << "tied";
}

TEST(Init, ByteLevelIsACheckpointThatEveryVerbTakes) {
  const Folder folder;
  ASSERT_EQ(init(folder, "m", {"--tokenizer", "byte-level"}).status, 0);
  EXPECT_EQ(io::HfFolder::open(folder / "m").eos_token_ids(), std::vector<int32_t>{256});
  const std::string chats =
      folder.put("chats.jsonl",
                 "{\"messages\":[{\"role\":\"system\",\"content\":\"S\"},{\"role\":\"user\","
                 "\"content\":\"u\"},"
                 "{\"role\":\"assistant\",\"content\":\"a\"}],\"add_generation_prompt\":true}\n");
  Finished f = run_slimexx({"tokenize", "--hf-checkpoint", folder / "m", "--input", chats});
  ASSERT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(f.out,
            "{\"ids\":[257,83,258,117,259,97,256,259],\"text\":\"<|system|>S<|user|>u<|assistant|>a"
            "<|endoftext|><|assistant|>\"}\n");
  const std::string prompts = folder.put(
      "prompts.jsonl",
      "{\"prompt\":\"2+2=\"}\n{\"prompt\":[{\"role\":\"user\",\"content\":\"2+2=\"}]}\n");
  const std::vector<std::string> generate = {"generate", "--hf-checkpoint", folder / "m",
                                             "--input",  prompts,           "--max-new-tokens",
                                             "4",        "--greedy"};
  f = run_slimexx(generate);
  ASSERT_EQ(f.status, 0) << f.err;
  const auto plain = parse_lines(f.out);
  ASSERT_EQ(plain.size(), 2u);
  auto chat = generate;
  chat.emplace_back("--apply-chat-template");
  const auto wrapped = parse_lines(run_slimexx(chat).out);
  EXPECT_EQ(wrapped[0]["tokens"], wrapped[1]["tokens"]) << "text became a user's message";
  EXPECT_EQ(wrapped[1], plain[1]);
  EXPECT_NE(plain[0]["logprobs"], plain[1]["logprobs"]) << "plain text stays as it is";
}

TEST(Init, TokenizerFilesAreCopied) {
  const Folder folder;
  ASSERT_EQ(init(folder, "m", {"--tokenizer", "byte-level"}).status, 0);
  folder.put("m/generation_config.json", "{\"eos_token_id\": [7, 9]}");
  ASSERT_EQ(init(folder, "copy", {"--tokenizer", folder / "m"}).status, 0);
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                           "generation_config.json"}) {
    EXPECT_EQ(read_bytes(folder / ("m/" + std::string(name))),
              read_bytes(folder / ("copy/" + std::string(name))))
        << name;
  }
  ASSERT_EQ(
      init(folder, "file",
           {"--tokenizer", folder / "m/tokenizer.json", "--eos-token", "<|user|>", "<|endoftext|>",
            "--chat-template", folder.put("t.jinja", "{{ messages[0].content }}")})
          .status,
      0);
  EXPECT_EQ(io::HfFolder::open(folder / "file").eos_token_ids(), (std::vector<int32_t>{258, 256}));
  EXPECT_EQ(read_bytes(folder / "file/chat_template.jinja"), "{{ messages[0].content }}");
}

// The weights are not quantised even if config.json is from a quantised model.
TEST(Init, DropsTheQuantisation) {
  const Folder folder;
  Json config = parse_json(kConfig, "config");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  const Finished f = run_slimexx(
      {"init", "--model-config", folder.put("fp8.json", config.dump()), "--save", folder / "m"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("without quantization_config"), std::string::npos) << f.err;
  config.erase("quantization_config");
  EXPECT_EQ(parse_json(read_bytes(folder / "m/config.json"), "written"), config);
}

TEST(Init, RefusalsWriteNothing) {
  const Folder folder;
  const std::vector<std::vector<std::string>> refused = {
      {"--tokenizer", "byte-levle"},
      {"--tokenizer", "byte-level", "--eos-token", "<|nothing|>"},
      {"--tokenizer", "byte-level", "--chat-template", folder.put("bad.jinja", "{% if %}")},
      {"--eos-token", "x"},
      {"--seed", "-1"}};
  for (const auto& more : refused) {
    const Finished f = init(folder, "m", more);
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_FALSE(std::filesystem::exists(folder / "m")) << more[0];
  }
}

TEST(Init, TheVocabularyMustHoldTheTokenizer) {
  const Folder folder;
  std::string config = kConfig;
  config.replace(config.find("260"), 3, "200");
  const Finished f = run_slimexx({"init", "--model-config", folder.put("small.json", config),
                                  "--tokenizer", "byte-level", "--save", folder / "m"});
  EXPECT_EQ(f.status, 2);
  EXPECT_NE(f.err.find("set vocab_size to 260 or more"), std::string::npos) << f.err;
}

// A folder with only GLM-4.5's tokenizer.json gives a vocabulary of 151,552 rows.
TEST(Init, TakesAFolderOfNothingButATokenizer) {
  const std::string source = real_tokenizer_path("glm-4.5");
  const Folder folder;
  std::string config = kConfig;
  config.replace(config.find("260"), 3, "151552");
  ASSERT_EQ(run_slimexx({"init", "--model-config", folder.put("glm.json", config), "--tokenizer",
                         source, "--save", folder / "m"})
                .status,
            0);
  EXPECT_EQ(io::HfFolder::open(folder / "m").eos_token_ids(),
            (std::vector<int32_t>{151329, 151338, 151336}));
}

}  // namespace
}  // namespace slimexx::cli
