#include "reward/latex/compare.h"

#include <algorithm>
#include <set>

#include "reward/latex/exact.h"
#include "reward/latex/forms.h"
#include "reward/latex/reading/region.h"
#include "reward/latex/reading/words.h"

namespace slimexx::reward::latex {
namespace {

constexpr size_t kMaxElements = 200;
constexpr const char* kDifferentSets = "different sets of real numbers";

bool is_condition(const Ref& node) {
  return node->kind == Kind::kRelation || node->kind == Kind::kList;
}

class Comparer {
 public:
  Comparer(const EqualityRules& rules, Budget& budget) : rules_(rules), budget_(budget) {}

  Verdict compare(const Ref& a, const Ref& b) {
    if (++depth_ > 60) return no("nested too deeply");
    Verdict verdict = compare_inner(a, b);
    --depth_;
    return verdict;
  }

 private:
  static Verdict yes(std::string reason) { return {true, std::move(reason)}; }
  static Verdict no(std::string reason) { return {false, std::move(reason)}; }

  // "10^3 = 1000", if true, means 1000.
  Ref settle_constants(const Ref& node) {
    if (node->kind != Kind::kRelation) return node;
    for (const std::string& op : node->ops) {
      if (op != "=") return node;
    }
    for (const Ref& arg : node->args) {
      const Ref value = evaluate_matrices(arg);
      if (!value || !is_scalar(value) || has_variable(value)) return node;
    }
    const Ref first = evaluate_matrices(node->args[0]), last = evaluate_matrices(node->args.back());
    return prove_equal(first, last, budget_) == Proof::kNone ? node : last;
  }

  Verdict compare_inner(const Ref& gold, const Ref& prediction) {
    const Ref a = settle_constants(gold), b = settle_constants(prediction);
    if (a->kind == Kind::kRelation && b->kind == Kind::kRelation) {
      if (Verdict verdict = compare_relations(*a, *b); verdict.equal) return verdict;
    }
    if (Verdict verdict = compare_as_regions(a, b); verdict.equal) {
      return verdict;
    } else if (verdict.reason == kDifferentSets && is_condition(a) && is_condition(b)) {
      return verdict;  // compare no parts: "x > 2 or x < 1" has those of "x > 2 and x < 1"
    }
    const Collection left = collect(a), right = collect(b);
    if (left.elements.size() > kMaxElements || right.elements.size() > kMaxElements) {
      return no("too many elements");
    }
    if (left.shape != Collection::kSingle || right.shape != Collection::kSingle) {
      return compare_collections(left, right);
    }
    return compare_labelled(left.elements[0], right.elements[0]);
  }

  Verdict compare_labelled(Labelled a, Labelled b) {
    unify_parameters(a, b);
    if (!a.label.empty() && !b.label.empty() && a.label != b.label) {
      return no("they have different unknowns");
    }
    const Approximated x = split_approximation(a.value), y = split_approximation(b.value);
    const bool bare = a.label.empty() && b.label.empty();
    if (bare && (contradicts(x, budget_) || contradicts(y, budget_))) {
      return no("a value and its approximation differ");
    }
    const Verdict verdict = compare_exact(settle_constants(x.exact), settle_constants(y.exact),
                                          bare && rules_.equations_name_values);
    if (verdict.equal || !x.decimal == !y.decimal) return verdict;
    // The reference may be the decimal: 2\sqrt{3} \approx 3.46 answers 3.46.
    const bool rounded =
        x.decimal ? is_rounded(x, y.exact, budget_) : is_rounded(y, x.exact, budget_);
    return rounded ? yes("the rounded value") : verdict;
  }

  // One side may be an equation that gives the other: "m + n = 293" and 293.
  Verdict compare_exact(const Ref& gold, const Ref& prediction, bool named) {
    if (named && is_equation(gold) != is_equation(prediction)) {
      const bool reference = is_equation(gold);
      const Ref value = named_value(reference ? *gold : *prediction, reference, budget_);
      if (value) {
        return reference ? compare_values(value, prediction) : compare_values(gold, value);
      }
    }
    return compare_values(gold, prediction);
  }

  // Compares values without lists, labels and inequalities.
  Verdict compare_values(Ref a, Ref b) {
    a = evaluate_matrices(a);
    b = evaluate_matrices(b);
    if (!a || !b) return no("a matrix expression has no value");
    if (a->kind == Kind::kList || b->kind == Kind::kList || a->kind == Kind::kSet ||
        b->kind == Kind::kSet) {
      if (a->kind == Kind::kSet && b->kind == Kind::kSet && a->args.empty() && b->args.empty()) {
        return yes("both the empty set");
      }
      const bool list_a = a->kind == Kind::kList || a->kind == Kind::kSet;
      const bool list_b = b->kind == Kind::kList || b->kind == Kind::kSet;
      return list_a && list_b ? compare_collections(collect(a), collect(b))
                              : no("one is a set or list, the other is not");
    }
    if (a->kind == Kind::kText || b->kind == Kind::kText) return compare_texts(a, b);
    if (a->kind == Kind::kQuantity || b->kind == Kind::kQuantity) return compare_quantities(a, b);
    if (a->kind == Kind::kBase || b->kind == Kind::kBase) return compare_bases(*a, *b);
    if (is_sequence(a) || is_sequence(b)) return compare_sequences(a, b);
    if (is_call(a, "ratio") || is_call(b, "ratio")) return compare_ratios(a, b);
    if (is_infinity(a) && is_infinity(b)) {
      return a->kind == b->kind ? yes("the same infinity") : no("infinities of opposite sign");
    }
    if (!is_scalar(a) || !is_scalar(b)) {
      if (contains_call(a, "undefined") || contains_call(b, "undefined")) return no("undefined");
      if (print_tree(a) == print_tree(b)) return yes("the same structure");
      return no(a->kind == b->kind ? "they differ" : "they are of different kinds");
    }
    return compare_scalars(a, b);
  }

  Verdict compare_scalars(const Ref& a, const Ref& b) {
    switch (prove_equal(a, b, budget_)) {
      case Proof::kExact:
        return yes("the same rational number");
      case Proof::kModular:
        return yes("equal modulo large random primes");
      case Proof::kNumeric:
        return yes("equal to 70 digits at every point tried");
      case Proof::kNone:
        break;
    }
    if (budget_.steps <= 0) return no("not shown equal within the step limit");
    return no(is_number(a) && is_number(b) ? "different numbers" : "the values differ");
  }

  static Verdict compare_texts(const Ref& a, const Ref& b) {
    if (a->kind != b->kind) return no("one is words, the other is not");
    return a->name == b->name ? yes("the same words") : no("different words");
  }

  static bool is_sequence(const Ref& node) {
    return node->kind == Kind::kTuple || node->kind == Kind::kMatrix;
  }

  Verdict compare_sequences(const Ref& a, const Ref& b) {
    if (!is_sequence(a) || !is_sequence(b)) return no("one is a tuple or matrix, the other is not");
    if (a->args.size() != b->args.size()) return no("they differ in length");
    if (a->kind == Kind::kMatrix && b->kind == Kind::kMatrix && a->columns != b->columns) {
      return no("the matrices differ in shape");
    }
    auto is_vector = [](const Ref& node) {
      if (node->kind == Kind::kTuple) return node->name == "()" || node->name == "<>";
      return node->columns == 1 || node->columns == static_cast<int>(node->args.size());
    };
    const bool brackets = a->kind == Kind::kTuple && b->kind == Kind::kTuple && a->name == b->name;
    const bool matrices = a->kind == Kind::kMatrix && b->kind == Kind::kMatrix;
    if (!brackets && !matrices && !(is_vector(a) && is_vector(b))) {
      return no("their brackets differ");
    }
    for (size_t k = 0; k < a->args.size(); ++k) {
      const Verdict part = compare(a->args[k], b->args[k]);
      if (!part.equal) return no("component " + std::to_string(k + 1) + ": " + part.reason);
    }
    return yes("equal component by component");
  }

  Verdict compare_ratios(const Ref& a, const Ref& b) {
    const bool ratio_a = is_call(a, "ratio"), ratio_b = is_call(b, "ratio");
    if (ratio_a != ratio_b) {
      const Ref& ratio = ratio_a ? a : b;
      const Ref& value = ratio_a ? b : a;
      if (ratio->args.size() != 2 || !is_scalar(value)) return no("one is a ratio");
      return compare_scalars(divide(ratio->args[0], ratio->args[1]), value);
    }
    if (a->args.size() != b->args.size()) return no("ratios of different length");
    for (size_t k = 1; k < a->args.size(); ++k) {
      // a0 : ak = b0 : bk
      const Ref left = make_mul({a->args[k], b->args[0]}),
                right = make_mul({b->args[k], a->args[0]});
      if (prove_equal(left, right, budget_) == Proof::kNone) return no("different ratios");
    }
    for (const Ref& part : a->args) {
      if (is_number(part) && part->value == 0) return no("a ratio with 0");
    }
    return yes("the same ratio");
  }

  Verdict compare_bases(const Node& a, const Node& b) {
    if (a.kind != Kind::kBase || b.kind != Kind::kBase) return no("only one has a base");
    if (a.args[0]->value == b.args[0]->value) {
      return a.value == b.value ? yes("the same digits in one base") : no("different digits");
    }
    const auto x = value_in_base(a), y = value_in_base(b);
    return x && y && *x == *y ? yes("the same number in two bases") : no("different numbers");
  }

  static std::optional<Integer> value_in_base(const Node& node) {
    const auto base = to_long(node.args[0]->value);
    if (!base || *base < 2 || *base > 36) return std::nullopt;
    Integer value = 0;
    for (char digit : node.value.str()) {
      if (digit < '0' || digit - '0' >= *base) return std::nullopt;
      value = value * *base + (digit - '0');
    }
    return value;
  }

  Verdict compare_quantities(const Ref& a, const Ref& b) {
    const bool unit_a = a->kind == Kind::kQuantity, unit_b = b->kind == Kind::kQuantity;
    const Ref& x = unit_a ? a->args[0] : a;
    const Ref& y = unit_b ? b->args[0] : b;
    const std::string left = unit_a ? canonical_unit(a->name) : "";
    const std::string right = unit_b ? canonical_unit(b->name) : "";
    if (left == right) return compare(x, y);
    if (unit_a && unit_b) {
      const bool turn =
          (left == "degree" && right == "radian") || (left == "radian" && right == "degree");
      if (!turn) return no("the units differ: " + left + ", " + right);
      return left == "degree" ? compare(to_radians(x), y) : compare(x, to_radians(y));
    }
    // One side omits the unit.
    Verdict bare = compare(x, y);
    if (bare.equal) return yes("equal, with a unit left out (" + left + right + ")");
    const std::string& unit = unit_a ? left : right;
    const Ref& with = unit_a ? x : y;
    const Ref& without = unit_a ? y : x;
    if (!rules_.converts_units || !is_scalar(with) || !is_scalar(without)) return bare;
    if (unit == "%" && compare_scalars(divide(with, make_number(100)), without).equal) {
      return yes("the percentage as a number");
    }
    if (unit == "degree" && compare_scalars(to_radians(with), without).equal) {
      return yes("the angle in radians");
    }
    // 12m may be a product; it is the length 12 \text{ m} if the other side has that unit.
    const Ref letters = product_of_unit_letters(unit);
    if (letters && compare_scalars(make_mul({with, letters}), without).equal) {
      return yes("equal, with the unit written as a variable");
    }
    return bare;
  }

  static Ref to_radians(const Ref& degrees) {
    return make_mul({degrees, make_symbol("pi"), make_number(Rational(1, 180))});
  }

  // ---- relations -------------------------------------------------------------------------------

  Verdict compare_relations(const Node& a, const Node& b) {
    if (a.args.size() != b.args.size()) return no("different relations");
    if (Verdict verdict = compare_part_by_part(a, b, false); verdict.equal) return verdict;
    if (Verdict verdict = compare_part_by_part(a, b, true); verdict.equal) return verdict;
    if (a.ops.size() != 1) return no("different relations");
    const std::string &p = a.ops[0], &q = b.ops[0];
    const bool order = (p[0] == '<' || p[0] == '>') && (q[0] == '<' || q[0] == '>');
    const bool same_kind = order ? p.size() == q.size() : p == q && (p == "=" || p == "!=");
    if (!same_kind || !is_scalar(a.args[0]) || !is_scalar(a.args[1]) || !is_scalar(b.args[0]) ||
        !is_scalar(b.args[1])) {
      return no("different relations");
    }
    Ref f = subtract(a.args[0], a.args[1]), g = subtract(b.args[0], b.args[1]);
    if (order && p[0] != q[0]) g = negate(g);
    if (is_proportional(f, g, order, budget_)) return yes("the same relation up to a factor");
    return no("different relations");
  }

  static std::string mirrored(const std::string& op) {
    if (op[0] == '<') return ">" + op.substr(1);
    if (op[0] == '>') return "<" + op.substr(1);
    return op;
  }

  // Compares the terms and relations of two chains in order. `reverse`: reads b from its end, so
  // that a < b < c equals c > b > a.
  Verdict compare_part_by_part(const Node& a, const Node& b, bool reverse) {
    const size_t n = a.args.size();
    for (size_t k = 0; k < a.ops.size(); ++k) {
      if (a.ops[k] == "in" && reverse) return no("different relations");
      const std::string op = reverse ? mirrored(b.ops[n - 2 - k]) : b.ops[k];
      if (a.ops[k] != op) return no("different relations");
    }
    // A chain of equations is judged by its last value (strip_label).
    if (n > 2 && a.ops[0] == "=") return no("a chain of equations");
    for (size_t k = 0; k < n; ++k) {
      const Ref& other = reverse ? b.args[n - 1 - k] : b.args[k];
      if (!compare(a.args[k], other).equal) return no("different relations");
    }
    return yes("the same relation");
  }

  Verdict compare_as_regions(const Ref& a, const Ref& b) {
    auto candidate = [](const Ref& node) {
      if (node->kind == Kind::kRelation) return node->ops[0] != "=" && node->ops[0] != "~";
      return node->kind == Kind::kTuple || node->kind == Kind::kSet || node->kind == Kind::kList ||
             (node->kind == Kind::kCall &&
              (node->name == "cup" || node->name == "cap" || node->name == "setminus" ||
               node->name == "such_that" || node->name == "set:R"));
    };
    // Intervals with two round or two square brackets are compared literally: (a, b) may be a
    // point.
    const Ref left = bare_set(a), right = bare_set(b);
    if (!candidate(left) || !candidate(right)) return no("no regions");
    if (left->kind == Kind::kTuple && right->kind == Kind::kTuple && left->name == right->name) {
      return no("no regions");
    }
    const auto x = to_region(left, budget_);
    if (!x) return no("no regions");
    const auto y = to_region(right, budget_);
    if (!y || !equal_regions(*x, *y, budget_)) return no(kDifferentSets);
    return yes("the same set of real numbers");
  }

  static Ref bare_set(const Ref& node) {
    const Labelled stripped = strip_label(node);
    const bool set_valued = stripped.value->kind == Kind::kTuple ||
                            stripped.value->kind == Kind::kSet ||
                            stripped.value->kind == Kind::kCall;
    return set_valued && node->ops.size() == 1 && node->ops[0] == "=" ? stripped.value : node;
  }

  // ---- collections -----------------------------------------------------------------------------

  void drop_duplicates(Collection& all) {
    std::vector<Labelled> out;
    for (const Labelled& element : all.elements) {
      const bool seen = std::any_of(out.begin(), out.end(), [&](const Labelled& other) {
        return element.label == other.label && compare(element.value, other.value).equal;
      });
      if (!seen) out.push_back(element);
    }
    all.elements = std::move(out);
  }

  static bool distinct_labels(const Collection& all) {
    std::set<std::string> labels;
    for (const Labelled& element : all.elements) {
      if (element.label.empty() || !labels.insert(element.label).second) return false;
    }
    return all.elements.size() > 1;
  }

  Verdict compare_collections(Collection a, Collection b) {
    // A repeated number in a list may be a root with multiplicity; a repeated tuple is one
    // solution.
    auto distinct = [](const Collection& all) {
      return all.shape == Collection::kSet || all.alternatives ||
             std::all_of(all.elements.begin(), all.elements.end(), [](const Labelled& element) {
               return element.value->kind == Kind::kTuple;
             });
    };
    if (distinct(a)) drop_duplicates(a);
    if (distinct(b)) drop_duplicates(b);
    auto tuple_of = [](const Collection& all) {
      const bool one = all.shape == Collection::kSingle && all.elements.size() == 1;
      return one && all.elements[0].value->kind == Kind::kTuple &&
                     all.elements[0].value->name == "()"
                 ? all.elements[0].value
                 : nullptr;
    };
    // "x = 1, y = 2" names its values; "1, 2" may be two solutions, and (1, 2) an interval.
    if (const Ref tuple = tuple_of(a); tuple && distinct_labels(b)) {
      return compare_in_order(tuple->args, b);
    }
    if (const Ref tuple = tuple_of(b); tuple && distinct_labels(a)) {
      return compare_in_order(tuple->args, a);
    }
    const bool list_of_one = a.elements.size() == 1 && b.elements.size() == 1 &&
                             a.shape != Collection::kSet && b.shape != Collection::kSet;
    if (list_of_one) return compare_labelled(a.elements[0], b.elements[0]);
    if (a.shape == Collection::kSingle || b.shape == Collection::kSingle) {
      return no("one is a single answer, the other a list or set");
    }
    if (a.elements.size() != b.elements.size()) {
      return no(std::to_string(a.elements.size()) + " elements against " +
                std::to_string(b.elements.size()));
    }
    const bool named_a = distinct_labels(a), named_b = distinct_labels(b);
    if (named_a != named_b) return compare_named_with_bare(a, b);
    return match(a, b);
  }

  Verdict compare_in_order(const std::vector<Ref>& values, const Collection& list) {
    if (values.size() != list.elements.size()) return no("they differ in length");
    for (size_t k = 0; k < values.size(); ++k) {
      if (!compare(values[k], list.elements[k].value).equal) {
        return no("component " + std::to_string(k + 1) + " differs");
      }
    }
    return yes("equal component by component");
  }

  // "x = 1, y = 2" against "1, 2": the order assigns the values.
  Verdict compare_named_with_bare(const Collection& a, const Collection& b) {
    for (size_t k = 0; k < a.elements.size(); ++k) {
      if (!compare_labelled(a.elements[k], b.elements[k]).equal) {
        return no("element " + std::to_string(k + 1) + " differs");
      }
    }
    return yes("equal element by element");
  }

  // Whether each element of `a` equals an element of `b`, with the same multiplicity.
  Verdict match(const Collection& a, const Collection& b) {
    std::vector<bool> used(b.elements.size(), false);
    for (size_t i = 0; i < a.elements.size(); ++i) {
      bool found = false;
      for (size_t j = 0; j < b.elements.size() && !found; ++j) {
        if (used[j] || !compare_labelled(a.elements[i], b.elements[j]).equal) continue;
        used[j] = found = true;
      }
      if (!found) return no("element " + std::to_string(i + 1) + " has no counterpart");
    }
    return yes("the same elements");
  }

  const EqualityRules& rules_;
  Budget& budget_;
  int depth_ = 0;
};

}  // namespace

Verdict compare_trees(const Ref& gold, const Ref& prediction, const EqualityRules& rules,
                      Budget& budget) {
  return Comparer(rules, budget).compare(gold, prediction);
}

}  // namespace slimexx::reward::latex
