#include "config/loader.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "config/interpolate.h"
#include "config/yaml_reader.h"
#include "slimexx/base/error.h"
#include "slimexx/base/file.h"
#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

namespace fs = std::filesystem;

constexpr const char* kDefaultsKey = "defaults";

// A unique path for each file, to detect cycles.
std::string canonical(const std::string& path) {
  std::error_code failed;
  const fs::path real = fs::weakly_canonical(path, failed);
  return failed ? path : real.string();
}

Node take_defaults(Node& root) {
  for (auto member = root.members.begin(); member != root.members.end(); ++member) {
    if (member->name != kDefaultsKey) continue;
    Node node = std::move(member->node);
    root.members.erase(member);
    return node;
  }
  return {};
}

class Loader {
 public:
  explicit Loader(Tree& tree) : tree_(tree) {}

  // Reads a file and merges it over its `defaults:` files; `from` is the place that names the file.
  Node read_file(const std::string& path, const Place& from) {
    check_chain(path, from);
    chain_.push_back(canonical(path));
    const int32_t file = tree_.add_file(path);
    Node root = read_yaml(tree_, file, read_text(path, from));
    const Node defaults = take_defaults(root);
    Node merged;
    merged.kind = NodeKind::kMap;
    for (const std::string& name : list_defaults(defaults)) {
      const std::string directory = fs::path(path).parent_path().string();
      merge_over(merged,
                 read_file(directory.empty() ? name : join_path(directory, name), defaults.place));
      if (count_nodes(merged) > kMaxNodes)
        throw_fault({path, "",
                     fmt::format("the files together hold more than {} values", kMaxNodes),
                     "put data into separate files; a run configuration has a few hundred lines"});
    }
    chain_.pop_back();
    merge_over(merged, std::move(root));
    return merged;
  }

 private:
  std::string read_text(const std::string& path, const Place& from) const {
    try {
      return read_text_file(path, kMaxFileBytes);
    } catch (const Error& e) {
      if (from.file < 0) throw Error(ErrorCode::kUsage, e.message(), e.hint(), path);
      throw Error(ErrorCode::kUsage, fmt::format("{}: {}", path, e.message()), e.hint(),
                  tree_.describe(from));
    }
  }

  void check_chain(const std::string& path, const Place& from) const {
    const auto again = std::find(chain_.begin(), chain_.end(), canonical(path));
    if (again != chain_.end()) {
      std::string circle;
      for (auto step = again; step != chain_.end(); ++step) circle += *step + " -> ";
      throw_fault({tree_.describe(from), kDefaultsKey,
                   "the files include each other: " + circle + *again, "remove one of the links"});
    }
    if (tree_.files.size() >= static_cast<size_t>(kMaxFiles))
      throw_fault({tree_.describe(from), kDefaultsKey,
                   fmt::format("more than {} files are included", kMaxFiles),
                   "merge some of them"});
  }

  std::vector<std::string> list_defaults(const Node& defaults) const {
    std::vector<std::string> names;
    const auto add = [&](const Node& node) {
      const std::string name =
          node.kind == NodeKind::kScalar ? interpolate_environment(tree_, node) : "";
      if (name.empty())
        throw_fault({tree_.describe(node.place), kDefaultsKey,
                     "expected the path of a file, or a list of paths",
                     "write `defaults: base.yaml`"});
      names.push_back(name);
    };
    if (defaults.kind == NodeKind::kSequence) {
      for (const Node& item : defaults.items) add(item);
    } else if (defaults.kind != NodeKind::kNull) {
      add(defaults);
    }
    return names;
  }

  Tree& tree_;
  std::vector<std::string> chain_;
};

void apply_override(Tree& tree, int32_t file, const Override& change) {
  const std::string place = tree.files[static_cast<size_t>(file)];
  const std::vector<std::string> parts = split(change.key, '.');
  const bool gap = std::any_of(parts.begin(), parts.end(), [](const auto& p) { return p.empty(); });
  if (gap || change.key.size() > kMaxKeyBytes || parts.size() > kMaxDepth) {
    tree.faults.add({place, "", fmt::format("{} is not a key", quote_value(change.key)),
                     "write section.key=value"});
    return;
  }
  Node value = read_override_value(tree, file, change.key, change.value);
  Node* node = &tree.root;
  for (const std::string& part : parts) {
    if (node->kind != NodeKind::kMap) *node = Node{};
    if (node->kind == NodeKind::kNull) {
      node->kind = NodeKind::kMap;
      node->place = node->key_place = {file, 0, 0};
    }
    Node* next = node->find(part);
    if (next == nullptr) {
      node->members.push_back({part, Node{}});
      next = &node->members.back().node;
      next->place = next->key_place = {file, 0, 0};
    }
    node = next;
  }
  *node = std::move(value);
}

void finish_tree(Tree& tree, const std::vector<Override>& overrides) {
  if (!overrides.empty()) {
    const int32_t file = tree.override_file = tree.add_file("--set");
    for (const Override& change : overrides) apply_override(tree, file, change);
    if (count_nodes(tree.root) > kMaxNodes)
      throw_fault({"--set", "", fmt::format("there are more than {} values", kMaxNodes),
                   "use --config FILE"});
  }
  interpolate(tree);
}

}  // namespace

Tree load_tree(const std::string& path, const std::vector<Override>& overrides) {
  Tree tree;
  tree.root.kind = NodeKind::kMap;
  if (!path.empty()) tree.root = Loader(tree).read_file(path, {});
  finish_tree(tree, overrides);
  return tree;
}

Tree parse_tree(const std::string& yaml, const std::string& name,
                const std::vector<Override>& overrides) {
  Tree tree;
  const int32_t file = tree.add_file(name);
  if (yaml.size() > kMaxFileBytes)
    throw_fault({name, "",
                 fmt::format("has {} bytes, but a configuration may have at most {}", yaml.size(),
                             kMaxFileBytes),
                 "put data into separate files"});
  tree.root = read_yaml(tree, file, yaml);
  if (const Node defaults = take_defaults(tree.root); defaults.kind != NodeKind::kNull)
    tree.faults.add({tree.describe(defaults.key_place), kDefaultsKey,
                     "only a file can have `defaults:`", "save the text as a file"});
  finish_tree(tree, overrides);
  return tree;
}

Tree parse_unexpanded(const std::string& yaml, const std::string& name) {
  Tree tree;
  const int32_t file = tree.add_file(name);
  if (yaml.size() > kMaxFileBytes)
    throw_fault({name, "", fmt::format("has {} bytes, which is too many", yaml.size()), ""});
  tree.root = read_yaml(tree, file, yaml);
  return tree;
}

}  // namespace slimexx::config
