#include "reward/latex/forms.h"

#include <algorithm>
#include <set>

#include "reward/latex/exact.h"

namespace slimexx::reward::latex {

std::string print_tree(const Ref& node) {
  std::string out = std::to_string(static_cast<int>(node->kind)) + node->name;
  if (node->kind == Kind::kNumber || node->kind == Kind::kBase) out += node->value.str();
  for (const std::string& op : node->ops) out += op;
  out += '(';
  for (const Ref& arg : node->args) out += print_tree(arg) + ",";
  return out + ')';
}

namespace {

// dy/dx, d^2 y/dx^2, d/dx f(x): products that begin with a differential in numerator and
// denominator.
bool is_derivative(const Ref& node) {
  auto differential = [](const Ref& part) -> std::string {
    const Ref& base = part->kind == Kind::kPow ? part->args[0] : part;
    const bool named = is_symbol(base, "d") || is_symbol(base, "partial");
    return named ? base->name : std::string();
  };
  if (node->kind != Kind::kMul) return false;
  const std::string above = differential(node->args[0]);
  const auto below = [&](const Ref& part) {
    return part->kind == Kind::kPow && part->args[0]->kind == Kind::kMul &&
           is_number(part->args[1]) && part->args[1]->value == -1 &&
           differential(part->args[0]->args[0]) == above;
  };
  return !above.empty() && std::any_of(node->args.begin() + 1, node->args.end(), below);
}

}  // namespace

bool is_label(const Ref& node) {
  auto plain = [](const Ref& part) {
    return part->kind == Kind::kSymbol && part->name != "pi" && part->name != "infty";
  };
  auto name = [&](const Ref& part) {
    return plain(part) || (part->kind == Kind::kCall && part->name.find(':') != std::string::npos &&
                           part->name.compare(0, 4, "set:") != 0);
  };
  auto capital = [&](const Ref& part) {
    return plain(part) && part->name[0] >= 'A' && part->name[0] <= 'Z';
  };
  if (name(node)) return true;
  if (is_call(node, "abs")) return plain(node->args[0]);
  if (is_call(node, "ratio") || node->kind == Kind::kTuple) {
    return std::all_of(node->args.begin(), node->args.end(), name);
  }
  if (node->kind == Kind::kText || is_derivative(node)) return true;
  if (node->kind != Kind::kMul || node->args.size() != 2) return false;
  const Ref& first = node->args[0];
  const Ref& second = node->args[1];
  if (is_symbol(first, "angle") || is_symbol(first, "triangle")) return plain(second);
  return capital(first) && second->kind == Kind::kPow && capital(second->args[0]) &&
         is_number(second->args[1]) && second->args[1]->value == -1;
}

namespace {

bool mentions(const Ref& node, const Ref& label) {
  if (node->kind == Kind::kSymbol && label->kind == Kind::kSymbol) return node->name == label->name;
  if (node->kind == Kind::kCall && label->kind == Kind::kCall && node->name == label->name &&
      node->name.find(':') != std::string::npos) {
    return print_tree(node) == print_tree(label);
  }
  return std::any_of(node->args.begin(), node->args.end(),
                     [&](const Ref& arg) { return mentions(arg, label); });
}

// The rest of a chain: args[first] ops[first] args[first + 1] ...
Ref tail_of(const Node& relation, size_t first) {
  const auto at = static_cast<std::ptrdiff_t>(first);
  if (first + 1 == relation.args.size()) return relation.args.back();
  return make_relation({relation.args.begin() + at, relation.args.end()},
                       {relation.ops.begin() + at, relation.ops.end()});
}

}  // namespace

Labelled strip_label(const Ref& node) {
  Labelled plain{"", nullptr, node};
  if (node->kind != Kind::kRelation) return plain;
  if (node->ops.size() == 1 && node->ops[0] == "in" && is_label(node->args[0])) {
    return {print_tree(node->args[0]), node->args[0], node->args[1]};
  }
  size_t last = node->ops.size();
  for (size_t k = 0; k < node->ops.size(); ++k) {
    if (node->ops[k] == "~" && k > 0) {  // the approximation stays with the value
      last = k;
      break;
    }
    if (node->ops[k] != "=" && node->ops[k] != "~") return plain;
  }
  const bool reversed = !is_label(node->args[0]) && last == 1 && is_label(node->args[1]);
  const Ref& label = reversed ? node->args[1] : node->args[0];
  const Ref value = reversed ? node->args[0] : tail_of(*node, last);
  if (!is_label(label) || mentions(value, label)) return plain;
  if (node->ops[0] == "~" && is_symbol(label, "e")) return plain;  // e \approx 2.718
  // For "Sum = 5 + 7 = 13" named_value looks at the whole chain.
  if (label->kind == Kind::kText && last > 1) return plain;
  // x = y = 2 says more than y = 2, so keep the whole chain.
  for (size_t k = 1; k < last; ++k) {
    if (is_label(node->args[k])) return plain;
  }
  return {print_tree(label), label, value};
}

void unify_parameters(Labelled& a, Labelled& b) {
  if (!a.label_node || !b.label_node || a.label == b.label) return;
  const Node &f = *a.label_node, &g = *b.label_node;
  if (f.kind != Kind::kCall || g.kind != Kind::kCall || f.name != g.name ||
      f.args.size() != g.args.size() || f.name.compare(0, 6, "apply:") != 0) {
    return;
  }
  for (size_t k = 0; k < f.args.size(); ++k) {
    if (f.args[k]->kind != Kind::kSymbol || g.args[k]->kind != Kind::kSymbol) return;
  }
  Ref value_a = a.value, value_b = b.value;
  for (size_t k = 0; k < f.args.size(); ++k) {
    const Ref parameter = make_symbol("#p" + std::to_string(k));
    value_a = substitute(value_a, f.args[k]->name, parameter);
    value_b = substitute(value_b, g.args[k]->name, parameter);
  }
  a.value = value_a;
  b.value = value_b;
  b.label = a.label;
}

namespace {

constexpr int kMaxSigns = 4;

int count_calls(const Ref& node, const char* name) {
  int count = is_call(node, name);
  for (const Ref& arg : node->args) count += count_calls(arg, name);
  return count;
}

// Bit k of `signs` chooses the sign at the k-th +- from the left.
Ref choose_signs(const Ref& node, unsigned signs, bool together, int& next) {
  if (node->args.empty()) return node;
  const bool plus_minus = is_call(node, "pm"), minus_plus = is_call(node, "mp");
  const int mine = plus_minus || minus_plus ? next++ : 0;
  std::vector<Ref> args;
  for (const Ref& arg : node->args) args.push_back(choose_signs(arg, signs, together, next));
  if (!plus_minus && !minus_plus) return rebuild(*node, std::move(args));
  const bool flip = (signs >> (together ? 0 : mine)) & 1;
  return flip != minus_plus ? negate(args[0]) : args[0];
}

}  // namespace

std::optional<std::vector<Ref>> expand_signs(const Ref& node) {
  const int plus = count_calls(node, "pm"), minus = count_calls(node, "mp");
  if (plus + minus == 0) return std::vector<Ref>{node};
  if (plus + minus > kMaxSigns) return std::nullopt;
  const bool together = minus > 0;  // upper signs with upper signs
  std::vector<Ref> out;
  for (unsigned signs = 0; signs < (together ? 2u : 1u << plus); ++signs) {
    int next = 0;
    out.push_back(choose_signs(node, signs, together, next));
  }
  return out;
}

namespace {

void collect_into(const Ref& node, Collection& out, bool top) {
  // "x = 1, 2" and "x \in \{1, 2\}" label every element.
  const Labelled stripped = strip_label(node);
  const Ref& value = stripped.value;
  const bool spread = value->kind == Kind::kList || (top && value->kind == Kind::kSet);
  if (spread) {
    for (const Ref& item : value->args) {
      const size_t before = out.elements.size();
      collect_into(item, out, false);
      for (size_t k = before; k < out.elements.size(); ++k) {
        Labelled& element = out.elements[k];
        if (element.label.empty()) {
          element.label = stripped.label;
          element.label_node = stripped.label_node;
        }
      }
    }
    if (value->kind == Kind::kSet) {
      out.shape = Collection::kSet;
    } else if (out.shape == Collection::kSingle) {
      out.shape = Collection::kList;
    }
    out.alternatives |= value->name == "or";
    return;
  }
  const auto signs = expand_signs(node);
  if (!signs || signs->size() == 1) {
    out.elements.push_back(stripped);
    return;
  }
  for (const Ref& chosen : *signs) out.elements.push_back(strip_label(chosen));
  if (out.shape == Collection::kSingle) out.shape = Collection::kList;
}

// Splits repeated labels p, q, p, q, ...: several solutions of a system.
void group_repeated_labels(Collection& out) {
  const size_t n = out.elements.size();
  size_t period = 0;
  for (size_t k = 1; k < n && !period; ++k) {
    if (out.elements[k].label == out.elements[0].label) period = k;
  }
  if (period < 2 || n % period != 0 || out.elements[0].label.empty()) return;
  for (size_t k = period; k < n; ++k) {
    if (out.elements[k].label != out.elements[k - period].label) return;
  }
  std::vector<Labelled> grouped;
  for (size_t k = 0; k < n; k += period) {
    std::vector<Ref> values, labels;
    for (size_t j = k; j < k + period; ++j) {
      values.push_back(out.elements[j].value);
      labels.push_back(out.elements[j].label_node);
    }
    const Ref label = make_node(Kind::kTuple, "()", std::move(labels));
    grouped.push_back({print_tree(label), label, make_node(Kind::kTuple, "()", std::move(values))});
  }
  out.elements = std::move(grouped);
}

// Splits the labels from a tuple: "p = 5, q = 2; p = 7, q = 2" was read as tuples of equations.
void unlabel_tuple(Labelled& element) {
  if (element.value->kind != Kind::kTuple || !element.label.empty()) return;
  std::vector<Ref> values, labels;
  for (const Ref& arg : element.value->args) {
    const Labelled part = strip_label(arg);
    if (part.label.empty()) return;
    values.push_back(part.value);
    labels.push_back(part.label_node);
  }
  element.label_node = make_node(Kind::kTuple, "()", std::move(labels));
  element.label = print_tree(element.label_node);
  element.value = make_node(Kind::kTuple, element.value->name, std::move(values));
}

}  // namespace

Collection collect(const Ref& node) {
  Collection out;
  collect_into(node, out, true);
  group_repeated_labels(out);
  for (Labelled& element : out.elements) unlabel_tuple(element);
  return out;
}

}  // namespace slimexx::reward::latex
