// The merged tree of a run's configuration. Every node has its file, line and column.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/faults.h"

namespace slimexx::config {

// Limits on the cost of a hostile file. A real recipe has some two hundred nodes in three levels.
inline constexpr uint64_t kMaxFileBytes = uint64_t{1} << 20;
inline constexpr int64_t kMaxNodes = 10000;
inline constexpr int kMaxDepth = 32;
inline constexpr size_t kMaxKeyBytes = 256;
inline constexpr int kMaxFiles = 32;
inline constexpr size_t kMaxInterpolatedBytes = size_t{1} << 16;

enum class NodeKind : uint8_t { kNull, kScalar, kSequence, kMap };

struct Member;

struct Node {
  NodeKind kind = NodeKind::kNull;
  bool quoted = false;          // 'x', "x", a block scalar: text even if it looks like a number
  bool asked = false;           // a binder read it
  Place place;                  // place of the value
  Place key_place;              // place of its key
  std::string text;             // text of a scalar
  std::string environment;      // environment variables in the text, "A, B"
  std::string unexpanded;       // the text with ${env:...} unexpanded; empty if it has none
  std::vector<Node> items;      // items of a sequence
  std::vector<Member> members;  // members of a map, in file order

  Node* find(std::string_view key);
  const Node* find(std::string_view key) const;
};

struct Member {
  std::string name;
  Node node;
};

struct Tree {
  std::vector<std::string> files;
  int32_t override_file = -1;  // index of --set in files; -1: no overrides
  Node root;
  FaultList faults;

  int32_t add_file(std::string name);
  std::string describe(const Place& place) const;  // "run.yaml:12:5", "--set"
};

int64_t count_nodes(const Node& node);

// Merges `upper` over `lower`: maps key by key; other values are replaced.
void merge_over(Node& lower, Node upper);

// The node at a dotted path, or null.
const Node* find_path(const Node& root, std::string_view path);

}  // namespace slimexx::config
