// Compares the reference page's claims about flags and keys with the keys and the code.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "slimexx/base/strings.h"
#include "slimexx/rl/run_config.h"
#include "test_paths.h"

namespace slimexx::rl {
namespace {

struct Row {
  std::string status, here;
};

struct Fields {
  Fields() { bind(list, run); }
  RunConfig run;
  config::FieldLister list;
};

// The rows of the page by flag, without the leading dashes.
std::map<std::string, Row> read_page() {
  std::map<std::string, Row> rows;
  std::istringstream page(config::write_flag_reference(Fields().list));
  const std::regex row(R"(\| `-*([^`]+)` \| ([^|]+) \| ([^|]+) \|.*)");
  std::smatch parts;
  for (std::string line; std::getline(page, line);)
    if (std::regex_match(line, parts, row)) rows[parts[1]] = {parts[2], parts[3]};
  return rows;
}

TEST(FlagReference, EveryFlagOfTheRecipesHasAStatus) {
  const std::map<std::string, Row> rows = read_page();
  const std::set<std::string> words = {"works", "not needed here", "later", "Python only"};
  std::ifstream file(test_data_path("config/recipe_flags.txt"));
  int num_flags = 0;
  for (std::string flag; std::getline(file, flag);) {
    if (flag.empty() || flag[0] == '#') continue;
    ++num_flags;
    const auto row = rows.find(flag);
    if (row == rows.end()) {
      ADD_FAILURE() << flag << " is not on the page";
    } else {
      EXPECT_TRUE(words.contains(row->second.status)) << flag << ": " << row->second.status;
    }
  }
  EXPECT_GT(num_flags, 190);
}

TEST(FlagReference, WhatWorksHasAKeyAndEveryKeysFlagIsListed) {
  const std::map<std::string, Row> rows = read_page();
  EXPECT_GT(rows.size(), 380u);
  for (const auto& [flag, row] : rows) {
    if (row.status == "works") {
      EXPECT_NE(row.here, "-") << flag;
    }
  }
  const std::string reference = config::write_config_reference(Fields().list);
  std::istringstream page(reference);
  const std::regex row(R"(\| `[^`]+` \|.*\| `--([a-z0-9-]+)` \| [^|]*\|)");
  std::smatch parts;
  int num_flags = 0;
  for (std::string line; std::getline(page, line);) {
    if (!std::regex_match(line, parts, row)) continue;
    ++num_flags;
    EXPECT_TRUE(rows.contains(parts[1])) << parts[1] << " is in no table of flags";
  }
  EXPECT_GT(num_flags, 90);
}

// All code except the lines that bind fields.
std::string read_sources() {
  std::string text;
  const std::regex binding("\"[a-z0-9_]+\",\\s*o\\.[a-z0-9_]+");
  for (const std::string& folder : {test_data_path("../src"), test_data_path("../include")}) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path());
      std::stringstream content;
      content << file.rdbuf();
      const std::string name = entry.path().filename().string();
      const bool binds = name == "run_config_fields.cpp" || name.ends_with("options.cpp");
      text += binds ? std::regex_replace(content.str(), binding, "") : content.str();
    }
  }
  return text;
}

// Every documented key must be read by some code.
TEST(FlagReference, EveryKeyThatWorksIsReadSomewhere) {
  const std::string sources = read_sources();
  ASSERT_GT(sources.size(), 500000u);
  const Fields fields;
  for (const config::FieldInfo& field : fields.list.fields()) {
    if (!field.meta.later.empty()) continue;
    const std::string member = "." + field.path.substr(field.path.rfind('.') + 1);
    bool is_read = false;
    for (size_t at = sources.find(member); at != std::string::npos && !is_read;
         at = sources.find(member, at + 1)) {
      const char next = sources[at + member.size()];
      is_read = std::isalnum(static_cast<unsigned char>(next)) == 0 && next != '_' && next != '"';
    }
    EXPECT_TRUE(is_read) << field.path;
  }
}

}  // namespace
}  // namespace slimexx::rl
