// The step folders of a run's checkpoints/, as the modules that find, write and remove them share
// them.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::io {

// A save writes step_NNNNNN.new, which becomes step_NNNNNN when it is complete. What a step_NNNNNN
// was is removed under the name step_NNNNNN.old, so that no folder half removed has a step's name.
inline constexpr std::string_view kNewSuffix = ".new", kOldSuffix = ".old";

inline constexpr const char* kLatestName = "latest";

struct StepFolder {
  int64_t step;
  std::string name;
  bool has_manifest;
  bool is_new;  // complete, but not renamed yet: the run was killed in between
};

// Of the name step_NNNNNN; with a suffix, of that name.
std::optional<int64_t> parse_step(std::string_view name, std::string_view suffix = {});

// Real folders only, as a link is never followed into something that is then removed: step_NNNNNN,
// and step_NNNNNN.new where it has a manifest. Newest first, of one step the new one first.
std::vector<StepFolder> list_steps(const std::string& root);

// Logs why not.
bool is_complete(const std::string& directory);

// The step folder that `latest` names; empty if none.
std::string read_latest_name(const std::string& root);

}  // namespace slimexx::io
