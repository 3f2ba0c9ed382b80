// The merged tree of a run's configuration. Every node knows the file, line and column it came
// from.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/faults.h"

namespace slimexx::config {

// Limits that keep a hostile file from costing more than its size justifies. A real recipe has some
// two hundred nodes three levels deep.
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
  bool asked = false;           // some binder read it
  Place place;                  // of the value
  Place key_place;              // of the key in front of it
  std::string text;             // of a scalar
  std::string environment;      // variables its text was taken from, "A, B"
  std::string unexpanded;       // the text with ${env:...} as they stand, where there are any
  std::vector<Node> items;      // of a sequence
  std::vector<Member> members;  // of a map, in file order

  Node* find(std::string_view key);
  const Node* find(std::string_view key) const;
};

struct Member {
  std::string name;
  Node node;
};

struct Tree {
  std::vector<std::string> files;
  int32_t override_file = -1;  // index of --set; -1: nothing is overridden
  Node root;
  FaultList faults;

  int32_t add_file(std::string name);
  std::string describe(const Place& place) const;  // "run.yaml:12:5", "--set"
};

int64_t count_nodes(const Node& node);

// Lays `upper` over `lower`: maps are merged key by key, anything else is replaced.
void merge_over(Node& lower, Node upper);

// The node at a dotted path, or null.
const Node* find_path(const Node& root, std::string_view path);

}  // namespace slimexx::config
