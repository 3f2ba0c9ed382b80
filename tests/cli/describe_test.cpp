#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "slimexx/io/safetensors.h"
#include "test_paths.h"

namespace slimexx::cli {
namespace {

std::string published_config(const std::string& name) {
  std::ifstream file(test_data_path("model/config/expert_spec_test.jsonl"));
  for (std::string line; std::getline(file, line);)
    if (const Json c = parse_json(line, "cases"); c["name"] == name) return c["config"].dump();
  return "";
}

TEST(Describe, CountsWhatAPublishedModelHolds) {
  const Folder folder;
  folder.put("config.json", published_config("Qwen3-30B-A3B"));
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* text : {"family      qwen3_moe (Qwen3MoeForCausalLM), BF16",
                           "layers 0 to 47: grouped-query attention, 32 heads over 4 of 128, "
                           "QK-norm; 8 of 128 experts 768, softmax",
                           "parameters  30532122624 (30.53 B), 3353032704 active per token",
                           "experts                        28991029248"})
    EXPECT_NE(f.out.find(text), std::string::npos) << text << " in\n" << f.out;
}

TEST(Describe, SaysWhichLayersSelectKeys) {
  const Folder folder;
  folder.put("config.json", published_config("GLM-5.2"));
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* text :
       {"family      glm_moe_dsa (GlmMoeDsaForCausalLM), BF16", "layers 0 to 2: latent attention",
        "selects 2048 keys with 32 index heads of 128", "layers 3 to 5, 7 to 9, 11 to 13, ",
        "71 to 73, 75 to 77: latent attention", "layer 78: multi-token prediction",
        "layers 6, 10, 14, ", "norms       RMS, epsilon 1e-05",
        "rotary      64 dimensions, neighbours rotate together, theta ",
        "sigmoid with correction bias, weights normalised x 2.5",
        "copies of embedding and head that MTP layers may have",
        "uses the keys selected by the previous indexer", "parameters  753329940480 (753.33 B)",
        "753329921024 without the routers' correction biases",
        "indexers                         196809984"})
    EXPECT_NE(f.out.find(text), std::string::npos) << text << " in\n" << f.out;
}

TEST(Describe, SaysHowTheContextIsStretched) {
  const Folder folder;
  Json config = parse_json(published_config("DeepSeek-V3"), "config");
  config["q_lora_rank"] = nullptr;
  folder.put("config.json", config.dump());
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_EQ(f.status, 0) << f.err;
  for (const char* text :
       {"theta 10000, yarn x 40 from 4096 positions, beta 32 to 1, cosines and "
        "sines x 1, scores x 1.87385",
        "values 128, queries from the input, rank 512", "norms       RMS, epsilon 1e-06"})
    EXPECT_NE(f.out.find(text), std::string::npos) << text << " in\n" << f.out;
}

// Every tensor of the file is counted once, including those of MTP layers.
TEST(Describe, CountsWhatIsInTheFile) {
  for (const char* model : {"glm4_moe", "deepseek_v3", "qwen3", "glm_moe_dsa"}) {
    const std::string directory = test_data_path("golden/oracle/") + model;
    const io::SafetensorsFile file(directory + "/model.safetensors");
    int64_t total = 0;
    for (const io::TensorEntry& entry : file.entries()) total += entry.num_elements();
    const Finished f = run_slimexx({"describe", "--hf-checkpoint", directory});
    EXPECT_EQ(f.status, 0) << f.err;
    EXPECT_NE(f.out.find("parameters  " + std::to_string(total) + " "), std::string::npos)
        << total << " in\n"
        << f.out;
  }
}

TEST(Describe, SaysWhichMtpLayersAreMissing) {
  const Folder folder;
  const std::string source = test_data_path("golden/oracle/deepseek_v3/");
  Json config = parse_json(read_bytes(source + "config.json"), "config");
  config["num_nextn_predict_layers"] = 9;
  folder.put("config.json", config.dump());
  std::filesystem::copy(source + "model.safetensors", folder / "model.safetensors");
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("config.json names 9 MTP layers, but the weights hold 1\n"),
            std::string::npos)
      << f.out;
}

TEST(Describe, SaysWhatIsFp8) {
  const Folder folder;
  Json config = parse_json(published_config("DeepSeek-V3"), "config");
  config["quantization_config"] = {{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}};
  folder.put("config.json", config.dump());
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.out.find("on disk     FP8 (e4m3), one scale per block of 128x128"), std::string::npos)
      << f.out;
}

TEST(Describe, RefusesByName) {
  const Folder folder;
  Json config = parse_json(published_config("DeepSeek-V3"), "config");
  config["scoring_func"] = "softmax";
  folder.put("config.json", config.dump());
  const Finished f = run_slimexx({"describe", "--hf-checkpoint", folder / ""});
  EXPECT_NE(f.status, 0);
  EXPECT_NE(f.err.find("scoring_func"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace slimexx::cli
