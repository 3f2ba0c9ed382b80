#include "text/jinja/interpreter.h"

namespace slimexx::text::jinja {

Value Interpreter::evaluate(const Expr& expr) {
  const Nested nested(*this);
  charge(1);
  return evaluate_kind(expr);
}

Value Interpreter::evaluate_kind(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return evaluate_constant(expr);
    case ExprKind::kName:
    case ExprKind::kNamespaceRef:
      return read(expr);
    case ExprKind::kTuple:
      return heap_.tuple(evaluate_all(expr.args));
    case ExprKind::kList:
      return heap_.list(evaluate_all(expr.args));
    case ExprKind::kDict:
      return evaluate_dict(expr);
    case ExprKind::kUnaryNot:
      return Value::boolean(!is_true(evaluate(*expr.args[0])));
    case ExprKind::kNegate:
      return negate_value(evaluate(*expr.args[0]));
    case ExprKind::kPlus: {
      const Value value = evaluate(*expr.args[0]);
      return value.is_integral() ? Value::integer(value.as_int())
                                 : negate_value(negate_value(value));
    }
    case ExprKind::kBinary:
      return evaluate_binary(expr);
    case ExprKind::kAnd: {
      Value left = evaluate(*expr.args[0]);
      return is_true(left) ? evaluate(*expr.args[1]) : left;
    }
    case ExprKind::kOr: {
      Value left = evaluate(*expr.args[0]);
      return is_true(left) ? left : evaluate(*expr.args[1]);
    }
    case ExprKind::kConcat:
      return evaluate_concat(expr);
    case ExprKind::kCompare:
      return evaluate_compare(expr);
    case ExprKind::kConditional:
      if (is_true(evaluate(*expr.args[0]))) return evaluate(*expr.args[1]);
      if (expr.args[2] != nullptr) return evaluate(*expr.args[2]);
      return heap_.undefined(
          "the inline if-expression evaluated to false and no else section was defined");
    case ExprKind::kAttribute: {
      const Value object = evaluate(*expr.args[0]);
      line_ = expr.line;
      const Value key = constant_string(expr.string_index);
      return get_attribute(object, expr.name, &key);
    }
    case ExprKind::kItem:
      return evaluate_item(expr);
    case ExprKind::kSlice:
      fail("a slice must be the only subscript");
    case ExprKind::kCall:
      return evaluate_call(expr, nullptr);
    case ExprKind::kFilter:
      return evaluate_filter(expr, nullptr);
    case ExprKind::kTest:
      return evaluate_test(expr);
  }
  return {};
}

Value Interpreter::evaluate_constant(const Expr& expr) {
  switch (expr.constant) {
    case ConstantKind::kNone:
      return Value::none();
    case ConstantKind::kBool:
      return Value::boolean(expr.integer != 0);
    case ConstantKind::kInt:
      return Value::integer(expr.integer);
    case ConstantKind::kFloat:
      return Value::real(expr.real);
    case ConstantKind::kString:
      return constant_string(expr.string_index);
  }
  return {};
}

Values Interpreter::evaluate_all(const std::vector<Expr*>& exprs, size_t from) {
  Values values;
  values.reserve(exprs.size() - from);
  for (size_t i = from; i < exprs.size(); ++i) values.push_back(evaluate(*exprs[i]));
  return values;
}

Value Interpreter::evaluate_dict(const Expr& expr) {
  Value dict(Kind::kDict, heap_.make<DictObject>());
  for (size_t i = 0; i < expr.args.size(); i += 2) {
    const Value key = evaluate(*expr.args[i]);
    dict.dict().set(key, evaluate(*expr.args[i + 1]));
  }
  heap_.check_live();
  return dict;
}

Value Interpreter::evaluate_binary(const Expr& expr) {
  const Value a = evaluate(*expr.args[0]);
  const Value b = evaluate(*expr.args[1]);
  line_ = expr.line;
  for (const Value& operand : {a, b}) {
    if (operand.is(Kind::kUndefined) && expr.op != Op::kMod)
      fail(operand.get<UndefinedObject>().message);
  }
  switch (expr.op) {
    case Op::kAdd:
      return add_values(heap_, a, b);
    case Op::kSub:
      return subtract_values(heap_, a, b);
    case Op::kMul:
      return multiply_values(heap_, a, b);
    case Op::kDiv:
      return divide_values(a, b);
    case Op::kFloorDiv:
      return floor_divide_values(a, b);
    case Op::kMod:
      return modulo_values(heap_, a, b);
    default:
      return power_values(heap_, a, b);
  }
}

Value Interpreter::evaluate_concat(const Expr& expr) {
  std::string text;
  for (const Expr* part : expr.args) {
    append_str(heap_, text, evaluate(*part));
  }
  return heap_.string(std::move(text));
}

Value Interpreter::evaluate_compare(const Expr& expr) {
  Value left = evaluate(*expr.args[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = evaluate(*expr.args[i + 1]);
    line_ = expr.line;
    if (!compare(expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

bool Interpreter::compare(Op op, const Value& a, const Value& b) {
  switch (op) {
    case Op::kEq:
      return equal_values(a, b);
    case Op::kNe:
      return !equal_values(a, b);
    case Op::kIn:
      return contains(b, a);
    case Op::kNotIn:
      return !contains(b, a);
    default:
      break;
  }
  for (const Value& operand : {a, b}) {
    if (operand.is(Kind::kUndefined)) fail(operand.get<UndefinedObject>().message);
  }
  switch (op) {
    case Op::kLt:
      return less_values(a, b, "<");
    case Op::kGt:
      return less_values(b, a, ">");
    case Op::kLe:
      return less_values(a, b, "<=") || equal_values(a, b);
    default:
      return less_values(b, a, ">=") || equal_values(a, b);
  }
}

Value Interpreter::evaluate_item(const Expr& expr) {
  const Value object = evaluate(*expr.args[0]);
  const Expr& index = *expr.args[1];
  if (index.kind != ExprKind::kSlice) {
    const Value key = evaluate(index);
    line_ = expr.line;
    return get_item(object, key);
  }
  Values bounds;
  for (const Expr* bound : index.args)
    bounds.push_back(bound == nullptr ? Value::none() : evaluate(*bound));
  line_ = expr.line;
  if (object.is(Kind::kUndefined)) fail(object.get<UndefinedObject>().message);
  return slice_value(heap_, object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::evaluate_arguments(const Expr& expr, size_t from) {
  Arguments arguments;
  arguments.positional = evaluate_all(expr.args, from);
  for (const auto& [name, value] : expr.keywords)
    arguments.keywords.emplace_back(name, evaluate(*value));
  if (expr.star_args != nullptr) {
    Values more = list_of(evaluate(*expr.star_args));
    std::move(more.begin(), more.end(), std::back_inserter(arguments.positional));
  }
  if (expr.star_keywords != nullptr) {
    const Value more = evaluate(*expr.star_keywords);
    if (!more.is(Kind::kDict)) fail("the argument after ** must be a mapping");
    for (const auto& [name, value] : more.dict().entries) {
      if (!name.is(Kind::kString)) fail("keywords must be strings");
      heap_.charge_bytes(name.text().size());
      charge(arguments.keywords.size());
      for (const auto& other : arguments.keywords) {
        if (other.first == name.text())
          fail(fmt::format("multiple values for keyword argument '{}'", other.first));
      }
      arguments.keywords.emplace_back(name.text(), value);
    }
  }
  return arguments;
}

Value Interpreter::evaluate_call(const Expr& expr, const Value* caller) {
  const Value callee = evaluate(*expr.args[0]);
  Arguments arguments = evaluate_arguments(expr, 1);
  if (caller != nullptr) arguments.keywords.emplace_back("caller", *caller);
  line_ = expr.line;
  return call(callee, std::move(arguments));
}

Value Interpreter::evaluate_filter(const Expr& expr, const Value* block_text) {
  // In a filter block the innermost filter has no input expression; its input is the text of the
  // block.
  const Value input = expr.args[0] != nullptr
                          ? block_text != nullptr && expr.args[0]->kind == ExprKind::kFilter
                                ? evaluate_filter(*expr.args[0], block_text)
                                : evaluate(*expr.args[0])
                          : *block_text;
  const Arguments arguments = evaluate_arguments(expr, 1);
  line_ = expr.line;
  if (expr.filter == nullptr) fail(fmt::format("no filter named '{}'", expr.name));
  return expr.filter->apply(*this, input, arguments);
}

Value Interpreter::evaluate_test(const Expr& expr) {
  const Value input = evaluate(*expr.args[0]);
  const Arguments arguments = evaluate_arguments(expr, 1);
  line_ = expr.line;
  if (expr.test == nullptr) fail(fmt::format("no test named '{}'", expr.name));
  return Value::boolean(expr.test->holds(*this, input, arguments));
}

Value Interpreter::apply_filter(std::string_view name, const Value& input,
                                const Arguments& arguments) {
  const FilterEntry* filter = find_filter(name);
  if (filter == nullptr) fail(fmt::format("no filter named '{}'", name));
  charge(1);
  const Level level(*this);
  return filter->apply(*this, input, arguments);
}

bool Interpreter::apply_test(std::string_view name, const Value& input,
                             const Arguments& arguments) {
  const TestEntry* test = find_test(name);
  if (test == nullptr) fail(fmt::format("no test named '{}'", name));
  charge(1);
  return test->holds(*this, input, arguments);
}

}  // namespace slimexx::text::jinja
