// The step folders in a run's checkpoints/ folder: shared by the code that finds, writes and
// removes them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::io {

// A save writes step_NNNNNN.new and renames it to step_NNNNNN when it is complete. To remove a
// step_NNNNNN, rename it to step_NNNNNN.old first, so that no half-removed folder has a step's
// name.
inline constexpr std::string_view kNewSuffix = ".new", kOldSuffix = ".old";

inline constexpr const char* kLatestName = "latest";

struct StepFolder {
  int64_t step;
  std::string name;
  bool has_manifest;
  bool is_new;  // complete but still named .new: the run was killed before the rename
};

// The step number in the name step_NNNNNN<suffix>; nothing for any other name.
std::optional<int64_t> parse_step(std::string_view name, std::string_view suffix = {});

// Lists folders step_NNNNNN, and step_NNNNNN.new if it has a manifest. Newest first; for the same
// step, .new first. Skips links, so that removal never follows one.
std::vector<StepFolder> list_steps(const std::string& root);

// If it is not complete, logs why.
bool is_complete(const std::string& directory);

// The step folder that `latest` names; empty if none.
std::string read_latest_name(const std::string& root);

}  // namespace slimexx::io
