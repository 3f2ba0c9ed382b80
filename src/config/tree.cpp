#include "config/tree.h"

#include <fmt/core.h>

namespace slimexx::config {

Node* Node::find(std::string_view key) {
  for (auto& [name, child] : members)
    if (name == key) return &child;
  return nullptr;
}

const Node* Node::find(std::string_view key) const { return const_cast<Node*>(this)->find(key); }

int32_t Tree::add_file(std::string name) {
  files.push_back(std::move(name));
  return static_cast<int32_t>(files.size()) - 1;
}

std::string Tree::describe(const Place& place) const {
  if (place.file < 0) return "";
  const auto& name = files[static_cast<size_t>(place.file)];
  if (place.line == 0) return name;
  return fmt::format("{}:{}:{}", name, place.line, place.column);
}

int64_t count_nodes(const Node& node) {
  int64_t total = 1;
  for (const auto& item : node.items) total += count_nodes(item);
  for (const auto& [name, child] : node.members) total += count_nodes(child);
  return total;
}

void merge_over(Node& lower, Node upper) {
  if (lower.kind != NodeKind::kMap || upper.kind != NodeKind::kMap) {
    lower = std::move(upper);
    return;
  }
  for (auto& [name, child] : upper.members) {
    if (Node* existing = lower.find(name)) {
      merge_over(*existing, std::move(child));
    } else {
      lower.members.push_back({name, std::move(child)});
    }
  }
  lower.place = upper.place;
  lower.key_place = upper.key_place;
}

const Node* find_path(const Node& root, std::string_view path) {
  const Node* node = &root;
  while (node != nullptr) {
    const size_t dot = path.find('.');
    node = node->find(path.substr(0, dot));
    if (dot == std::string_view::npos) return node;
    path.remove_prefix(dot + 1);
  }
  return nullptr;
}

}  // namespace slimexx::config
