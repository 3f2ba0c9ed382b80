// The expression tree of an answer. Immutable and shared; depth and size are bounded by the parser,
// so recursion over a tree is safe.
#pragma once
#include <boost/multiprecision/cpp_int.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace slimexx::reward::latex {

using Integer = boost::multiprecision::cpp_int;
using Rational = boost::multiprecision::cpp_rational;

enum class Kind {
  kNumber,    // value
  kSymbol,    // name; "pi", "e", "i", "infty" are the constants
  kAdd,       // args
  kMul,       // args; a / b is a * b^-1
  kPow,       // base, exponent; roots are powers 1/n
  kCall,      // name, args: functions, big operators, +-, set operations, ratios, matrix functions
  kTuple,     // name is the pair of brackets: "()", "[)", "<>" ...
  kSet,       // \{ \}
  kList,      // bare list; name: the joint, one of ",", ";", "and", "or"
  kMatrix,    // args row by row, `columns` wide
  kRelation,  // args[0] ops[0] args[1] ops[1] ...
  kText,      // name: lower-case words
  kQuantity,  // args[0] with the unit `name`
  kBase,      // value written in base args[0]
};

struct Node;
using Ref = std::shared_ptr<const Node>;

struct Node {
  Kind kind = Kind::kNumber;
  std::string name;
  Rational value;
  std::vector<Ref> args;
  std::vector<std::string> ops;
  int columns = 0;
};

Ref make_number(Rational value);
Ref make_symbol(std::string name);
Ref make_call(std::string name, std::vector<Ref> args);
Ref make_node(Kind kind, std::string name, std::vector<Ref> args);
Ref make_relation(std::vector<Ref> args, std::vector<std::string> ops);

// These fold numbers exactly while the result stays small (see kMaxFoldedBits) and flatten sums and
// products. They never throw.
Ref make_add(std::vector<Ref> args);
Ref make_mul(std::vector<Ref> args);
Ref make_pow(Ref base, Ref exponent);
Ref make_function(std::string name, std::vector<Ref> args);
Ref negate(const Ref& node);
Ref subtract(const Ref& left, const Ref& right);
Ref divide(const Ref& left, const Ref& right);

// Above this many bits of numerator or denominator, powers, factorials and binomials stay symbolic.
inline constexpr unsigned kMaxFoldedBits = 8192;

inline bool is_number(const Ref& node) { return node->kind == Kind::kNumber; }
inline bool is_call(const Ref& node, const char* name) {
  return node->kind == Kind::kCall && node->name == name;
}
inline bool is_symbol(const Ref& node, const char* name) {
  return node->kind == Kind::kSymbol && node->name == name;
}
bool is_infinity(const Ref& node);  // infty or -infty
bool is_constant_name(const std::string& name);
bool has_variable(const Ref& node);  // a symbol that is not a constant, or an unknown function
bool contains_call(const Ref& node, const char* name);
bool is_scalar(const Ref& node);  // a number or expression, not a set, tuple, text ...

// rebuild: a copy of the node with other arguments, folded anew.
Ref rebuild(const Node& node, std::vector<Ref> args);
Ref substitute(const Ref& node, const std::string& symbol, const Ref& value);

}  // namespace slimexx::reward::latex
