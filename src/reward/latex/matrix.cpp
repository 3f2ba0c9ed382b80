// Evaluates sums, products, powers and determinants of matrices.
#include "reward/latex/exact.h"
#include "reward/latex/forms.h"

namespace slimexx::reward::latex {
namespace {

constexpr size_t kMaxCells = 400;

Ref make_matrix(std::vector<Ref> cells, int columns) {
  auto node = std::make_shared<Node>();
  node->kind = Kind::kMatrix;
  node->args = std::move(cells);
  node->columns = columns;
  return node;
}

bool is_matrix(const Ref& node) { return node->kind == Kind::kMatrix; }
int rows_of(const Ref& m) { return static_cast<int>(m->args.size()) / m->columns; }

Ref add(const Ref& a, const Ref& b) {
  if (!is_matrix(a) || !is_matrix(b) || a->columns != b->columns ||
      a->args.size() != b->args.size()) {
    return nullptr;
  }
  std::vector<Ref> cells;
  for (size_t k = 0; k < a->args.size(); ++k) cells.push_back(make_add({a->args[k], b->args[k]}));
  return make_matrix(std::move(cells), a->columns);
}

Ref scale(const Ref& factor, const Ref& matrix) {
  std::vector<Ref> cells;
  for (const Ref& cell : matrix->args) cells.push_back(make_mul({factor, cell}));
  return make_matrix(std::move(cells), matrix->columns);
}

Ref multiply(const Ref& a, const Ref& b) {
  if (!is_matrix(a)) return is_matrix(b) ? scale(a, b) : make_mul({a, b});
  if (!is_matrix(b)) return scale(b, a);
  if (a->columns != rows_of(b)) return nullptr;
  std::vector<Ref> cells;
  for (int row = 0; row < rows_of(a); ++row) {
    for (int column = 0; column < b->columns; ++column) {
      std::vector<Ref> terms;
      for (int k = 0; k < a->columns; ++k) {
        terms.push_back(
            make_mul({a->args[row * a->columns + k], b->args[k * b->columns + column]}));
      }
      cells.push_back(make_add(std::move(terms)));
    }
  }
  return make_matrix(std::move(cells), b->columns);
}

Ref determinant(const Ref& m) {
  const int n = m->columns;
  if (rows_of(m) != n || n > 3) return nullptr;
  auto cell = [&](int row, int column) { return m->args[row * n + column]; };
  if (n == 1) return cell(0, 0);
  if (n == 2) {
    return subtract(make_mul({cell(0, 0), cell(1, 1)}), make_mul({cell(0, 1), cell(1, 0)}));
  }
  std::vector<Ref> terms;
  for (int k = 0; k < 3; ++k) {
    const int a = (k + 1) % 3, b = (k + 2) % 3;
    terms.push_back(make_mul({cell(0, k), subtract(make_mul({cell(1, a), cell(2, b)}),
                                                   make_mul({cell(1, b), cell(2, a)}))}));
  }
  return make_add(std::move(terms));
}

bool has_matrix(const Ref& node) {
  if (is_matrix(node)) return true;
  for (const Ref& arg : node->args) {
    if (has_matrix(arg)) return true;
  }
  return false;
}

}  // namespace

Ref evaluate_matrices(const Ref& node) {
  const bool arithmetic = node->kind == Kind::kAdd || node->kind == Kind::kMul ||
                          node->kind == Kind::kPow || is_call(node, "det");
  if (!arithmetic || !has_matrix(node)) return node;
  std::vector<Ref> args;
  for (const Ref& arg : node->args) {
    args.push_back(evaluate_matrices(arg));
    if (!args.back() || args.back()->args.size() > kMaxCells) return nullptr;
  }
  if (is_call(node, "det")) return is_matrix(args[0]) ? determinant(args[0]) : nullptr;
  if (node->kind == Kind::kPow) {
    const auto power = is_number(args[1]) ? to_long(args[1]->value) : std::nullopt;
    if (!is_matrix(args[0])) return make_pow(args[0], args[1]);
    if (!power || *power < 1 || *power > 8) return nullptr;
    Ref result = args[0];
    for (long k = 1; k < *power && result; ++k) result = multiply(result, args[0]);
    return result;
  }
  Ref result = args[0];
  for (size_t k = 1; k < args.size() && result; ++k) {
    result = node->kind == Kind::kAdd ? add(result, args[k]) : multiply(result, args[k]);
  }
  return result;
}

}  // namespace slimexx::reward::latex
