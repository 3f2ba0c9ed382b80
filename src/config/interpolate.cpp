#include "config/interpolate.h"

#include <fmt/core.h>

#include <cstdlib>
#include <map>
#include <optional>

#include "slimexx/base/strings.h"

namespace slimexx::config {
namespace {

constexpr int kMaxChain = 32;

class Interpolator {
 public:
  explicit Interpolator(Tree& tree) : tree_(tree) {}

  void run() { walk(tree_.root, ""); }

  std::string expand_environment_only(const Node& scalar) {
    environment_only_ = true;
    Node copy = scalar;
    const auto fault = expand(copy);
    if (fault) throw_fault({tree_.describe(scalar.place), "defaults", fault->reason, fault->hint});
    return copy.text;
  }

 private:
  struct Problem {
    std::string reason, hint;
  };
  enum class State { kOpen, kDone };

  void walk(Node& node, const std::string& path) {
    if (node.kind == NodeKind::kScalar) resolve(node, path);
    for (auto& [name, child] : node.members) walk(child, path.empty() ? name : path + "." + name);
    for (size_t i = 0; i < node.items.size(); ++i)
      walk(node.items[i], fmt::format("{}[{}]", path, i));
  }

  // Resolves a scalar once; a reference to a scalar that is still being resolved is a cycle.
  std::optional<Problem> resolve(Node& node, const std::string& path) {
    if (depth_ >= kMaxChain)
      return Problem{fmt::format("starts a chain of more than {} references", kMaxChain),
                     "shorten it"};
    const auto [entry, fresh] = states_.emplace(&node, State::kOpen);
    if (!fresh) {
      if (entry->second == State::kDone) return std::nullopt;
      return Problem{fmt::format("${{{}}} refers to itself", path), "remove the cycle"};
    }
    if (node.text.find("${") != std::string::npos) {
      ++depth_;
      auto problem = expand(node);
      --depth_;
      if (problem) {
        tree_.faults.add(
            {tree_.describe(node.place), path, problem->reason, problem->hint, node.place});
        node.kind = NodeKind::kNull;
        node.text.clear();
      }
    }
    states_[&node] = State::kDone;
    return std::nullopt;
  }

  std::optional<Problem> expand(Node& node) {
    const std::string text = std::move(node.text);
    const std::string_view view = text;
    std::string out, unexpanded;
    for (size_t i = 0; i < view.size();) {
      if (view.substr(i).starts_with("$${")) {
        out += "${";
        unexpanded += "$${";
        i += 3;
      } else if (view.substr(i).starts_with("${")) {
        const size_t end = view.find('}', i);
        if (end == std::string_view::npos)
          return Problem{"has a ${ without a closing }", "write $${ for a literal ${"};
        if (auto problem = replace(node, view.substr(i + 2, end - i - 2), out, unexpanded))
          return problem;
        i = end + 1;
      } else {
        out += view[i];
        unexpanded += view[i++];
      }
      if (out.size() > kMaxInterpolatedBytes || total_bytes_ + out.size() > kMaxFileBytes)
        return Problem{fmt::format("grows beyond {} bytes", kMaxInterpolatedBytes),
                       "shorten the values that it refers to"};
    }
    total_bytes_ += out.size();
    node.text = std::move(out);
    if (!node.environment.empty()) node.unexpanded = std::move(unexpanded);
    return std::nullopt;
  }

  std::optional<Problem> replace(Node& node, std::string_view name, std::string& out,
                                 std::string& unexpanded) {
    node.quoted = false;  // flow maps need quotes around "${n}"; the type is that of n
    if (name.starts_with("env:")) {
      unexpanded += fmt::format("${{{}}}", name);
      return replace_environment(node, name.substr(4), out);
    }
    if (environment_only_)
      return Problem{fmt::format("${{{}}} is not known at this point", name),
                     "only ${env:NAME} works under defaults"};
    const Node* target = find_path(tree_.root, name);
    if (target == nullptr || target->kind == NodeKind::kNull)
      return Problem{
          fmt::format("${{{}}} refers to a key that the configuration does not set", name),
          "set that key, or write the value here"};
    if (target->kind != NodeKind::kScalar)
      return Problem{fmt::format("${{{}}} refers to a section or a list", name),
                     "refer to a single value"};
    // find_path returns const nodes, but this class may modify the tree.
    auto* scalar = const_cast<Node*>(target);
    if (auto problem = resolve(*scalar, std::string(name))) return problem;
    if (scalar->kind != NodeKind::kScalar)
      return Problem{fmt::format("${{{}}} refers to a key that has an error", name),
                     "fix that key"};
    out += scalar->text;
    unexpanded += scalar->unexpanded.empty() ? escape_references(scalar->text) : scalar->unexpanded;
    add_environment(node, scalar->environment);
    return std::nullopt;
  }

  static std::optional<Problem> replace_environment(Node& node, std::string_view name,
                                                    std::string& out) {
    const size_t mark = name.find(":-");
    const std::string variable(name.substr(0, mark));
    if (variable.empty())
      return Problem{"${env:} lacks the name of a variable", "write ${env:NAME:-default}"};
    const char* value = std::getenv(variable.c_str());
    add_environment(node, variable);
    if (value != nullptr && *value != '\0') {
      if (!is_valid_utf8(value))
        return Problem{fmt::format("the environment variable {} is not valid UTF-8", variable),
                       "set it to valid UTF-8"};
      out += value;
    } else if (mark != std::string_view::npos) {
      out += name.substr(mark + 2);
    } else {
      return Problem{fmt::format("the environment variable {} is not set", variable),
                     fmt::format("export {0}=..., or give a default: ${{env:{0}:-...}}", variable)};
    }
    return std::nullopt;
  }

  static void add_environment(Node& node, const std::string& names) {
    if (names.empty() || node.environment.size() > kMaxKeyBytes ||
        node.environment.find(names) != std::string::npos)
      return;
    node.environment += node.environment.empty() ? names : ", " + names;
  }

  Tree& tree_;
  bool environment_only_ = false;
  int depth_ = 0;
  size_t total_bytes_ = 0;
  std::map<const Node*, State> states_;
};

}  // namespace

void interpolate(Tree& tree) { Interpolator(tree).run(); }

std::string interpolate_environment(const Tree& tree, const Node& scalar) {
  return Interpolator(const_cast<Tree&>(tree)).expand_environment_only(scalar);
}

std::string escape_references(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.substr(i).starts_with("${")) out += '$';
    out += text[i];
  }
  return out;
}

}  // namespace slimexx::config
