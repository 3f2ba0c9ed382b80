#include "slimexx/rl/export.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "slimexx/base/error.h"
#include "slimexx/base/file.h"

namespace slimexx::rl {
namespace {

namespace fs = std::filesystem;

class ExportTarget : public testing::Test {
 protected:
  ExportTarget()
      : folder_(fs::temp_directory_path() / ("slimexx_export_" + std::to_string(getpid()))) {
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  ~ExportTarget() override { fs::remove_all(folder_); }

  std::string make(const std::string& name, const std::vector<std::string>& files) {
    fs::create_directories(folder_ / name);
    for (const auto& file : files) {
      fs::create_directories((folder_ / name / file).parent_path());
      write_file_atomic(folder_ / name / file, "{}");
    }
    return folder_ / name;
  }
  static void expect_refused(const std::string& directory, const std::string& words) {
    try {
      check_export_target(directory);
      ADD_FAILURE() << directory << " would be replaced";
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ErrorCode::kUsage);
      EXPECT_NE(std::string(e.what()).find(words), std::string::npos) << e.what();
    }
  }

  fs::path folder_;
};

TEST_F(ExportTarget, NewEmptyAndEarlierExportsAreTaken) {
  EXPECT_NO_THROW(check_export_target(folder_ / "new"));
  EXPECT_NO_THROW(check_export_target(folder_ / "new/below/"));
  EXPECT_NO_THROW(check_export_target(make("empty", {})));
  EXPECT_NO_THROW(check_export_target(
      make("export", {"config.json", "model.safetensors", "tokenizer.json", "LICENSE"})));
  EXPECT_NO_THROW(check_export_target((folder_ / "export/").string()));
}

// The export removes what stood there.
TEST_F(ExportTarget, OtherFoldersAreRefused) {
  expect_refused(make("notes", {"notes.txt"}), "neither empty nor");
  expect_refused(make("program", {"config.json", "index.js"}), "neither empty nor");
  expect_refused(make("deep", {"config.json", "model.safetensors", "runs/metrics.jsonl"}),
                 "\"runs\"");
  expect_refused(folder_ / "notes/notes.txt", "is a file");
}

}  // namespace
}  // namespace slimexx::rl
