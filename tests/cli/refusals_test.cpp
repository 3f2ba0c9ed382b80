// Each line of refusals.jsonl is a case: a refused command, its error text, and a check that no
// files are left. {MODEL} is a checkpoint without tokenizer, {DIR} a new folder, {INPUT} a file in
// it with the case's "input", {ROWS} and {LONG} files of token rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "run_binary.h"
#include "test_paths.h"

namespace slimexx::cli {
namespace {

std::string long_row() {
  Json tokens = Json::array();
  for (int i = 0; i < 513; ++i) tokens.push_back(i % 96);
  return Json{{"tokens", tokens}}.dump() + "\n";
}

class Places {
 public:
  Places()
      : places_{{"{MODEL}", golden_model("llama")},
                {"{ROWS}", folder_.put("rows.jsonl", "{\"tokens\":[1,2,3]}\n")},
                {"{LONG}", folder_.put("long.jsonl", long_row())},
                {"{INPUT}", folder_ / "input.jsonl"},
                {"{DIR}", folder_.path()}} {}
  std::string fill(std::string text) const {
    for (const auto& [word, place] : places_) {
      for (size_t at = text.find(word); at != std::string::npos; at = text.find(word)) {
        text.replace(at, word.size(), place);
      }
    }
    return text;
  }
  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
  std::vector<std::pair<std::string, std::string>> places_;
};

std::vector<std::string> list_folder(const Folder& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder.path())) {
    names.push_back(entry.path().string());
  }
  std::ranges::sort(names);
  return names;
}

void run_case(const Json& row) {
  const Places places;
  if (row.contains("input")) places.folder().put("input.jsonl", places.fill(row["input"]));
  std::vector<std::string> arguments;
  for (const Json& word : row["args"]) arguments.push_back(places.fill(word));
  const auto before = list_folder(places.folder());
  const Finished f = run_slimexx(arguments);
  EXPECT_EQ(f.status, 2) << f.err;
  EXPECT_EQ(f.out, "");
  EXPECT_EQ(f.err.rfind("error: ", 0), 0u) << f.err;
  for (const Json& words : row["stderr"]) {
    EXPECT_NE(f.err.find(places.fill(words)), std::string::npos) << "wanted " << words << " in:\n"
                                                                 << f.err;
  }
  EXPECT_EQ(before, list_folder(places.folder())) << "something was written";
}

TEST(Refusals, SayWhatAndWriteNothing) {
  const auto rows = parse_lines(read_bytes(test_data_path("cli/refusals.jsonl")));
  ASSERT_GT(rows.size(), 50u);
  for (const Json& row : rows) {
    SCOPED_TRACE(row["args"].dump());
    run_case(row);
  }
}

}  // namespace
}  // namespace slimexx::cli
