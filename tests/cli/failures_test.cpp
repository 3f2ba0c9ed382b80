// Verbs handle odd file names and contents, and a failed verb leaves no half-written files.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "run_binary.h"
#include "slimexx/base/strings.h"
#include "slimexx/io/checkpoint.h"

namespace slimexx::cli {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTinyConfig =
    R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":260,"hidden_size":4,
        "num_hidden_layers":1,"intermediate_size":4,"num_attention_heads":2,"tie_word_embeddings":true,
        "dtype":"bfloat16"})";

std::vector<std::string> names_in(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(directory))
    names.push_back(entry.path().filename().string());
  std::ranges::sort(names);
  return names;
}

// A copy of a small model's folder.
std::string copy_model(const Folder& folder) {
  fs::copy(golden_model("llama"), folder / "m", fs::copy_options::recursive);
  return folder / "m";
}

void expect_printable(const Finished& f) {
  EXPECT_TRUE(is_valid_utf8(f.err)) << f.err;
  EXPECT_EQ(f.err.find_first_of(std::string_view("\x1b\r\0", 3)), std::string::npos) << f.err;
}

TEST(FileNames, ThatAreNotUtf8AreLeftOutOfACheckpoint) {
  const Folder folder;
  const std::string model = copy_model(folder);
  folder.put("m/x\xFF.json", "{}");
  folder.put("m/kept.json", "{}");
  const Finished f = run_slimexx({"convert-hf", "--hf-checkpoint", model, "--save", folder / "s"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_NE(f.err.find("m/x\\xff.json: not copied"), std::string::npos) << f.err;
  expect_printable(f);
  EXPECT_TRUE(fs::exists(folder / "s/kept.json"));
  EXPECT_FALSE(fs::exists(folder / "s/x\xFF.json"));
  io::Checkpoint::open(folder / "s").verify_hashes();
}

TEST(FileNames, ShardThatIsNotUtf8IsNamed) {
  const Folder folder;
  const std::string model = copy_model(folder);
  fs::rename(model + "/model.safetensors", model + "/m\xFF.safetensors");
  const Finished f = run_slimexx({"convert-hf", "--hf-checkpoint", model, "--save", folder / "s"});
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_NE(f.err.find("m\\xff.safetensors\n  hint: rename it"), std::string::npos) << f.err;
  EXPECT_FALSE(fs::exists(folder / "s"));
}

TEST(FileNames, FoldersThatAreNotUtf8Serve) {
  const Folder folder;
  const std::string model = folder / "m\xFF";
  fs::copy(golden_model("llama"), model, fs::copy_options::recursive);
  const Finished f =
      run_slimexx({"convert-hf", "--hf-checkpoint", model, "--save", folder / "s\xFF", "--verify"});
  EXPECT_EQ(f.status, 0) << f.err;
  expect_printable(f);
}

TEST(SideFiles, ThatAreNoFilesAreNotPassedOver) {
  for (const bool is_fifo : {false, true}) {
    const Folder folder;
    const std::string model = copy_model(folder), path = model + "/tokenizer.json";
    fs::remove(path);
    if (is_fifo) {
      ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
    } else {
      fs::create_directory(path);
    }
    const Finished f =
        run_slimexx({"convert-hf", "--hf-checkpoint", model, "--save", folder / "s"});
    EXPECT_EQ(f.status, 2) << f.err;
    EXPECT_NE(f.err.find(path), std::string::npos) << f.err;
    EXPECT_FALSE(fs::exists(folder / "s")) << "the half-written folder was left";
  }
}

TEST(SideFiles, GenerationConfigMustBeAnObject) {
  const Folder folder;
  const std::string model = copy_model(folder);
  folder.put("m/generation_config.json", "3");
  const std::string rows = folder.put("rows.jsonl", "{\"tokens\":[1]}\n");
  const Finished f = run_slimexx({"generate", "--hf-checkpoint", model, "--input", rows});
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_NE(f.err.find("generation_config.json"), std::string::npos) << f.err;
}

// A file size limit simulates a full disk.
TEST(HalfWritten, InitLeavesNothing) {
  const Folder folder;
  const std::string config = folder.put("config.json", kTinyConfig);
  for (const char* limit :
       {"1", "5"}) {  // KiB: the first fails in the weights, the second in the tokenizer
    const Finished f = e2e::run_slimexx(
        0,
        {"init", "--model-config", config, "--tokenizer", "byte-level", "--save", folder / "new"},
        {"bash", "-c", "ulimit -f " + std::string(limit) + " && exec \"$0\" \"$@\""});
    EXPECT_EQ(f.status, 3) << limit << f.err;
    EXPECT_NE(f.err.find("ulimit -f"), std::string::npos) << f.err;
    EXPECT_EQ(names_in(folder.path()), std::vector<std::string>{"config.json"}) << limit;
  }
  const Finished f = run_slimexx({"init", "--model-config", config, "--save", folder / "new/"});
  EXPECT_EQ(f.status, 0) << f.err;
  EXPECT_EQ(names_in(folder / "new"),
            (std::vector<std::string>{"config.json", "model.safetensors"}));
}

TEST(OutputIsInput, UnderAnyName) {
  const Folder folder;
  const std::string text = "{\"response\":\"1\",\"label\":\"1\"}\n";
  const std::string input = folder.put("rows.jsonl", text);
  fs::create_symlink(input, folder / "link.jsonl");
  fs::create_hard_link(input, folder / "hard.jsonl");
  for (const char* name : {"rows.jsonl", "./rows.jsonl", "link.jsonl", "hard.jsonl"}) {
    const Finished f =
        run_slimexx({"grade", "--rm-type", "math", "--input", input, "--output", folder / name});
    EXPECT_EQ(f.status, 2) << name << f.err;
    EXPECT_EQ(read_bytes(input), text) << name;
  }
  const Finished f = run_slimexx(
      {"grade", "--rm-type", "math", "--input", input, "--output", folder / "out.jsonl"});
  EXPECT_EQ(f.status, 0) << f.err;
}

// `redirection` is shell syntax.
Finished run_redirected(const std::vector<std::string>& arguments, const std::string& redirection) {
  return e2e::run_slimexx(
      0, arguments, {"bash", "-c", "exec 3> >(:); wait $!; exec \"$0\" \"$@\" " + redirection});
}

constexpr const char* kReaderGone = ">&3";  // a pipe without a reader

TEST(StandardOutput, WhatCannotBeWrittenIsNotLostSilently) {
  const Folder folder;
  const std::string rows = folder.put("rows.jsonl", "{\"response\":\"1\",\"label\":\"1\"}\n");
  const std::string config =
      folder.put("run.yaml", "model: {hf_checkpoint: " + golden_model("llama") +
                                 "}\ndata: {prompt_data: p.jsonl}\nreward: {rm_type: math}\n"
                                 "rollout: {num_rollout: 1, n_samples_per_prompt: 2, "
                                 "rollout_max_response_len: 16, rollout_max_prompt_len: 32}\n");
  const std::vector<std::vector<std::string>> verbs = {
      {"--help"},
      {"train", "-h"},
      {"version"},
      {"describe", "--hf-checkpoint", golden_model("llama")},
      {"grade", "--rm-type", "math", "--input", rows},
      {"plan", "--config", config, "--gpu", "cpu"},
      {"plan", "--config", config, "--gpu", "cpu", "--json"},
      {"convert-hf", "--hf-checkpoint", golden_model("llama"), "--verify", "--save"}};
  int number = 0;
  for (std::vector<std::string> verb : verbs) {
    for (const char* redirection : {">/dev/full", ">&-", kReaderGone}) {
      std::vector<std::string> arguments = verb;
      if (verb[0] == "convert-hf") arguments.push_back(folder / ("s" + std::to_string(number++)));
      SCOPED_TRACE(verb[0] + redirection);
      const Finished f = run_redirected(arguments, redirection);
      if (std::string_view(redirection) == kReaderGone) {
        EXPECT_EQ(f.status, 128 + SIGPIPE) << f.err;
        EXPECT_EQ(f.err.find("error"), std::string::npos) << f.err;
      } else {
        EXPECT_EQ(f.status, 3) << f.err;
        EXPECT_NE(f.err.find("at: stdout"), std::string::npos) << f.err;
      }
    }
  }
}

TEST(StandardError, ThatTakesNothingLeavesTheStatus) {
  for (const char* redirection : {"2>/dev/full", "2>&-", "2>&3"}) {
    EXPECT_EQ(run_redirected({"bogus"}, redirection).status, 2) << redirection;
    EXPECT_EQ(run_redirected({"version"}, redirection).status, 0) << redirection;
  }
}

// If stdout is closed, the next opened file must not get its descriptor.
TEST(StandardOutput, ThatIsClosedKeepsItsPlace) {
  const Finished f = run_redirected({"grade", "--rm-type", "math", "--input", "/dev/fd/1"}, ">&-");
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_NE(f.err.find("not a regular file"), std::string::npos) << f.err;
}

// Names from files are escaped and shortened before they are printed.
TEST(Terminal, NamesOfTensorsAndTypesAreEscapedAndShort) {
  const Folder folder;
  folder.put("hostile.json", "{\"architectures\":[\"\\u001b[31m\\nerror: fake\\u202e" +
                                 std::string(1 << 20, 'x') + "\"]}");
  const Finished f =
      run_slimexx({"init", "--model-config", folder / "hostile.json", "--save", folder / "new"});
  EXPECT_EQ(f.status, 2);
  expect_printable(f);
  EXPECT_LT(f.err.size(), 4000u);
  EXPECT_EQ(f.err.find("\nerror:"), std::string::npos) << f.err;
}

}  // namespace
}  // namespace slimexx::cli
