#include "rl/config/run_config_folders.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "slimexx/rl/run_start.h"

namespace slimexx::rl {
namespace fs = std::filesystem;
namespace {

// The absolute path with links resolved as far as it exists; empty for an empty path.
fs::path resolve(const std::string& path) {
  if (path.empty()) return {};
  std::error_code error;
  const fs::path absolute = fs::absolute(path).lexically_normal();
  const fs::path resolved = fs::weakly_canonical(absolute, error);
  const fs::path found = error ? absolute : resolved;
  return found.has_filename() ? found : found.parent_path();
}

// Whether `inner` is `outer` or lies inside it.
bool lies_in(const fs::path& inner, const fs::path& outer) {
  if (inner.empty() || outer.empty()) return false;
  return std::ranges::mismatch(outer, inner).in1 == outer.end();
}

// A path of the configuration, and its name in an error.
struct NamedPath {
  std::string name;
  fs::path path;
};

// Folders that a run keeps in its run folder. Other outputs must not lie inside them.
constexpr const char* kRunFolders[] = {"checkpoints", "logs", "ranks", "samples", "tb", "trace"};

class FolderCheck {
 public:
  FolderCheck(config::Config& config, const RunConfig& run)
      : config_(config),
        run_(run),
        run_dir_{"observe.run_dir", resolve(run.observe.run_dir)},
        root_{"checkpoint.save", resolve(checkpoint_root(run, run.observe.run_dir))} {}

  void check() {
    check_export();
    if (!run_.checkpoint.save.empty()) check_root();
    const NamedPath dumps{"debug.save_rollout", resolve(run_.debug.save_rollout)};
    refuse_equal(dumps, {"debug.load_rollout", resolve(run_.debug.load_rollout)});
    for (const NamedPath& model : models()) {
      refuse_equal(run_dir_, model);
      refuse_equal(dumps, model);
    }
  }

 private:
  std::vector<NamedPath> models() const {
    return {{"model.hf_checkpoint", resolve(run_.model.hf_checkpoint)},
            {"model.ref_load", resolve(run_.model.ref_load)}};
  }

  void refuse_equal(const NamedPath& written, const NamedPath& other) {
    if (!written.path.empty() && written.path == other.path)
      config_.add_fault(written.name, fmt::format("is the folder of {}", other.name),
                        "choose a new folder");
  }

  // The export replaces its whole folder.
  void check_export() {
    const fs::path target = resolve(run_.checkpoint.save_hf);
    if (target.empty()) return;
    constexpr const char* kKey = "checkpoint.save_hf";
    std::vector<NamedPath> others = models();
    for (const NamedPath& other :
         {NamedPath{"model.load", resolve(run_.model.load)}, root_, run_dir_,
          NamedPath{"debug.save_rollout", resolve(run_.debug.save_rollout)},
          NamedPath{"debug.load_rollout", resolve(run_.debug.load_rollout)},
          NamedPath{"debug.dump_weights", resolve(run_.debug.dump_weights)},
          NamedPath{"debug.dump_gradients", resolve(run_.debug.dump_gradients)}})
      others.push_back(other);
    for (const NamedPath& other : others) {
      if (!lies_in(other.path, target)) continue;
      config_.add_fault(kKey,
                        fmt::format("{} the folder of {}, which it would replace",
                                    other.path == target ? "is" : "holds", other.name),
                        "choose a new folder");
      return;
    }
    refuse_inside(kKey, target, root_);
    refuse_run_folders(kKey, target);
  }

  void check_root() {
    constexpr const char* kKey = "checkpoint.save";
    for (const NamedPath& model : models()) refuse_equal(root_, model);
    for (const char* name : kRunFolders)
      if (std::string(name) != "checkpoints")
        refuse_inside(kKey, root_.path, {std::string("the run's ") + name, run_dir_.path / name});
  }

  void refuse_run_folders(const char* key, const fs::path& path) {
    for (const char* name : kRunFolders)
      if (!config_.has_fault(key))
        refuse_inside(key, path, {std::string("the run's ") + name, run_dir_.path / name});
  }

  void refuse_inside(const char* key, const fs::path& path, const NamedPath& other) {
    if (lies_in(path, other.path))
      config_.add_fault(
          key, fmt::format("is inside the folder of {}, {}", other.name, other.path.string()),
          "choose a new folder outside of it");
  }

  config::Config& config_;
  const RunConfig& run_;
  NamedPath run_dir_, root_;
};

}  // namespace

void check_folders(config::Config& config, const RunConfig& run) {
  FolderCheck(config, run).check();
}

}  // namespace slimexx::rl
