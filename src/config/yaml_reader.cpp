#include "config/yaml_reader.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <functional>
#include <map>
#include <set>
#include <sstream>

#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

// Builds the tree from events. yaml-cpp recurses once per level, so the depth limit here also
// bounds its stack; the limit on nodes also bounds the expansion of aliases.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(Tree& tree, int32_t file, std::string key)
      : tree_(tree), file_(file), key_(std::move(key)) {}

  Node take_root() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    finish_node(start_node(NodeKind::kNull, mark), anchor);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Node node = start_node(NodeKind::kScalar, mark);
    node.quoted = tag != "?" && !tag.empty();
    node.text = value;
    check_tag(tag, node.place);
    finish_node(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(NodeKind::kSequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(NodeKind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchored_.find(anchor);
    if (found == anchored_.end())
      fail(place_of(mark), "there is an alias inside the value of its own anchor",
           "refer to a key with ${path.to.key}");
    Node copy = found->second;
    count(count_nodes(copy), copy.place);
    copy.place = place_of(mark);
    place_child(std::move(copy));
  }

 private:
  struct Open {
    Node node;
    YAML::anchor_t anchor = 0;
    bool have_key = false;
    std::string key;
    Place key_place;
    std::set<std::string, std::less<>> keys;
  };

  Place place_of(const YAML::Mark& mark) const {
    if (!key_.empty()) return {file_, 0, 0};
    return {file_, mark.line + 1, mark.column + 1};
  }
  [[noreturn]] void fail(const Place& place, std::string reason, std::string hint) const {
    throw_fault({tree_.describe(place), path(), std::move(reason), std::move(hint)});
  }
  std::string path() const {
    std::string text = key_;
    for (const Open& open : stack_) {
      if (!open.have_key) continue;
      if (!text.empty()) text += '.';
      text += open.key;
    }
    return text.size() > kMaxKeyBytes ? "" : text;
  }
  void count(int64_t n, const Place& place) {
    nodes_ += n;
    if (nodes_ > kMaxNodes)
      fail(place, fmt::format("the file holds more than {} values", kMaxNodes),
           "a run configuration has a few hundred lines; put data into separate files");
  }
  Node start_node(NodeKind kind, const YAML::Mark& mark) {
    Node node;
    node.kind = kind;
    node.place = place_of(mark);
    count(1, node.place);
    return node;
  }
  void check_tag(const std::string& tag, const Place& place) const {
    if (tag.empty() || tag == "?" || tag == "!" || tag == "tag:yaml.org,2002:str") return;
    fail(place, fmt::format("the tag {} is not supported", quote_value(tag)),
         "remove the tag; the key decides the type");
  }
  void open(NodeKind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    Node node = start_node(kind, mark);
    check_tag(tag == "tag:yaml.org,2002:str" ? "!!str" : tag, node.place);
    if (stack_.size() >= static_cast<size_t>(kMaxDepth))
      fail(node.place, fmt::format("values are nested more than {} levels deep", kMaxDepth),
           "nest less: a configuration needs three levels");
    stack_.emplace_back();
    stack_.back().node = std::move(node);
    stack_.back().anchor = anchor;
  }
  void close() {
    Open top = std::move(stack_.back());
    stack_.pop_back();
    finish_node(std::move(top.node), top.anchor);
  }
  void finish_node(Node node, YAML::anchor_t anchor) {
    if (anchor != 0) {
      count(count_nodes(node), node.place);
      anchored_[anchor] = node;
    }
    place_child(std::move(node));
  }
  void place_child(Node node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& parent = stack_.back();
    if (parent.node.kind == NodeKind::kSequence) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.have_key) {
      take_key(parent, node);
    } else {
      node.key_place = parent.key_place;
      const bool fresh = parent.keys.insert(parent.key).second;
      if (!fresh) report_duplicate(parent);
      if (fresh) parent.node.members.push_back({std::move(parent.key), std::move(node)});
      parent.have_key = false;
    }
  }
  void take_key(Open& parent, const Node& key) {
    if (key.kind != NodeKind::kScalar || key.text.empty())
      fail(key.place, "a key must be a word", "quote the key if it is text");
    if (key.text.size() > kMaxKeyBytes)
      fail(key.place, fmt::format("a key of {} bytes is too long", key.text.size()),
           "check for a missing quote");
    if (key.text == "<<" && !key.quoted)
      fail(key.place, "merge keys (<<) are not supported", "use `defaults:` or ${path.to.key}");
    parent.have_key = true;
    parent.key = key.text;
    parent.key_place = key.place;
  }
  void report_duplicate(const Open& parent) {
    const Node* first = parent.node.find(parent.key);
    tree_.faults.add(
        {tree_.describe(parent.key_place), path(),
         fmt::format("the key is given twice, first at {}", tree_.describe(first->key_place)),
         "keep one of the two", parent.key_place});
  }

  Tree& tree_;
  const int32_t file_;
  const std::string key_;  // key of an override; empty: a file
  std::vector<Open> stack_;
  std::map<YAML::anchor_t, Node> anchored_;
  Node root_;
  int64_t nodes_ = 0;
};

// Clearer messages for common yaml-cpp errors.
std::string explain(const std::string& message) {
  if (message.find("end of map") != std::string::npos)
    return "wrong indentation or punctuation in a mapping";
  if (message.find("end of sequence") != std::string::npos)
    return "wrong indentation or punctuation in a list";
  if (message.find("illegal tab") != std::string::npos) return "a tab, but YAML needs spaces";
  if (message.find("illegal map value") != std::string::npos)
    return "a second \": \" in a plain value";
  if (message.find("end of file") != std::string::npos || message.find("EOF") != std::string::npos)
    return "the text ends inside a quoted value";
  if (message.find("referenced anchor") != std::string::npos) return "an alias without its anchor";
  return message;
}

// yaml-cpp takes a tab before a key as part of the preceding text, so look for tabs here.
bool is_indented_by_tab(const std::string& text, int line) {
  size_t at = 0;
  for (int i = 0; i < line && at != std::string::npos; ++i) {
    at = text.find('\n', at);
    if (at != std::string::npos) ++at;
  }
  if (at == std::string::npos) return false;
  const size_t first = text.find_first_not_of(" \t", at);
  return text.substr(at, first - at).find('\t') != std::string::npos;
}

Node read_documents(Tree& tree, int32_t file, const std::string& key, const std::string& text) {
  const std::string& name = tree.files[static_cast<size_t>(file)];
  if (!is_valid_utf8(text))
    throw_fault({name, key, "is not valid UTF-8",
                 key.empty() ? "save the file as UTF-8" : "give the value in UTF-8"});
  if (text.find('\0') != std::string::npos)
    throw_fault({name, key, "holds a NUL byte", "check that this is a text file"});
  TreeBuilder builder(tree, file, key);
  std::istringstream stream(text);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) return {};
    Node root = builder.take_root();
    if (parser)
      throw_fault({tree.describe(root.place), key, "there is more than one document (---)",
                   "keep one document per file"});
    return root;
  } catch (const YAML::Exception& e) {
    const Place place = key.empty() && !e.mark.is_null()
                            ? Place{file, e.mark.line + 1, e.mark.column + 1}
                            : Place{file, 0, 0};
    const bool tab = !e.mark.is_null() && is_indented_by_tab(text, e.mark.line);
    throw_fault({tree.describe(place), key,
                 "is not valid YAML: " + (tab ? "a tab, but YAML needs spaces" : explain(e.msg)),
                 key.empty() ? "check this line and the one above; quote values that contain \": "
                               "\", and ${...} inside { }"
                             : "quote the value for the shell and for YAML"});
  }
}

}  // namespace

Node read_yaml(Tree& tree, int32_t file, const std::string& text) {
  Node root = read_documents(tree, file, "", text);
  if (root.kind == NodeKind::kNull) root.kind = NodeKind::kMap;
  if (root.kind != NodeKind::kMap)
    throw_fault({tree.describe(root.place), "", "the file is not a mapping of keys to values",
                 "write sections such as `rollout:` with indented `key: value` lines"});
  return root;
}

Node read_override_value(Tree& tree, int32_t file, const std::string& key,
                         const std::string& value) {
  Node node = read_documents(tree, file, key, value);
  node.place = node.key_place = {file, 0, 0};
  return node;
}

}  // namespace slimexx::config
