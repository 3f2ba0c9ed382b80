#include "reward/latex/identity.h"

#include <cstdint>

namespace slimexx::reward::latex {

uint64_t mix_bits(uint64_t a, uint64_t b) {
  uint64_t z = a * 0x9E3779B97F4A7C15u + b + 0xD1B54A32D192ED03u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t hash_text(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (unsigned char c : text) hash = (hash ^ c) * 0x100000001B3u;
  return mix_bits(hash, text.size());
}

namespace {

// Reads \log as the decimal or the natural logarithm, since authors differ.
Ref read_log(const Ref& node, bool decimal) {
  if (node->args.empty()) return node;
  std::vector<Ref> args;
  for (const Ref& arg : node->args) args.push_back(read_log(arg, decimal));
  if (is_call(node, "log")) {
    const Ref natural = make_function("ln", args);
    return decimal ? divide(natural, make_function("ln", {make_number(10)})) : natural;
  }
  return rebuild(*node, std::move(args));
}

Proof prove_read(const Ref& a, const Ref& b, Budget& budget) {
  if (is_number(a) && is_number(b)) return a->value == b->value ? Proof::kExact : Proof::kNone;
  if (is_call(a, "undefined") || is_call(b, "undefined")) return Proof::kNone;
  const auto modular = equal_modular(a, b, budget);
  if (modular && *modular) return Proof::kModular;
  const auto numeric = equal_numeric(a, b, budget);
  return numeric && *numeric ? Proof::kNumeric : Proof::kNone;
}

}  // namespace

Proof prove_equal(const Ref& a, const Ref& b, Budget& budget) {
  if (!is_scalar(a) || !is_scalar(b)) return Proof::kNone;
  if (!contains_call(a, "log") && !contains_call(b, "log")) return prove_read(a, b, budget);
  for (bool decimal : {true, false}) {
    const Proof proof = prove_read(read_log(a, decimal), read_log(b, decimal), budget);
    if (proof != Proof::kNone) return proof;
  }
  return Proof::kNone;
}

bool is_proportional(const Ref& f, const Ref& g, bool positive, Budget& budget) {
  if (!is_scalar(f) || !is_scalar(g) || !has_variable(f) || !has_variable(g)) return false;
  auto same = proportional_modular(f, g, budget);
  if (!same || !*same) same = proportional_numeric(f, g, budget);
  if (!same || !*same) return false;
  return !positive || sign_of_product(f, g, budget) == 1;
}

std::optional<int> sign_of(const Ref& node, Budget& budget) {
  if (is_number(node)) return node->value < 0 ? -1 : node->value > 0 ? 1 : 0;
  if (is_infinity(node)) return node->kind == Kind::kSymbol ? 1 : -1;
  if (!is_scalar(node) || has_variable(node)) return std::nullopt;
  return numeric_sign(node, budget);
}

}  // namespace slimexx::reward::latex
