// Python's two ways to format: "%s" % value and "{}".format(value), and HTML escaping.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "slimexx/base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

constexpr int64_t kMaxWidth = 100'000;  // for one field
constexpr int64_t kMaxPrecision = 1'000;

struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';
  bool alternate = false, comma = false, underscore = false;
  int64_t width = 0, precision = -1;
  char type = '\0';
};

std::string pad(Heap& heap, std::string text, const Spec& spec, char default_align) {
  heap.charge_characters(text.size());
  const int64_t length = code_points_before(text, text.size());
  const int64_t missing = spec.width - length;
  if (missing <= 0) return text;
  heap.charge_characters(static_cast<uint64_t>(missing));
  const char align = spec.align == '\0' ? default_align : spec.align;
  const int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  const auto repeat = [&](int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  if (align == '=' && !text.empty() &&
      std::string_view("+- ").find(text[0]) != std::string_view::npos) {
    return text[0] + repeat(missing) + text.substr(1);
  }
  return repeat(left) + text + repeat(missing - left);
}

std::string digits_in_base(Int value, int base, bool upper) {
  if (value == 0) return "0";
  std::string out;
  for (; value != 0; value /= base) {
    const int digit = std::abs(static_cast<int>(value % base));
    out += (upper ? "0123456789ABCDEF" : "0123456789abcdef")[digit];
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void group_thousands(std::string& digits, char separator) {
  size_t end = digits.find_first_not_of("0123456789");
  if (end == std::string::npos) end = digits.size();
  for (auto i = static_cast<int64_t>(end) - 3; i > 0; i -= 3)
    digits.insert(static_cast<size_t>(i), 1, separator);
}

std::string format_real(double value, const Spec& spec) {
  char type = spec.type;
  const int precision = spec.precision < 0 ? 6 : static_cast<int>(spec.precision);
  if (type == '\0' && spec.precision < 0) return format_python_float(value);
  if (type == '\0') type = 'g';
  if (type == '%') return fmt::format("{:.{}f}%", value * 100, precision);
  const std::string directive = fmt::format("%{}.{}{}", spec.alternate ? "#" : "", precision, type);
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  const int n = std::snprintf(out.data(), out.size(), directive.c_str(), value);
  out.resize(static_cast<size_t>(std::max(n, 0)));
  return out;
}

std::string format_number(Heap& heap, const Value& value, const Spec& spec) {
  // A few dozen digits take a microsecond; with a precision in the hundreds, each digit takes some
  // nanoseconds.
  heap.charge(32 + static_cast<uint64_t>(std::max<int64_t>(spec.precision, 0)) / 4);
  std::string digits;
  const bool real =
      std::string_view("eEfFgG%").find(spec.type) != std::string_view::npos && spec.type != '\0';
  if (value.is(Kind::kFloat) || real) {
    digits = format_real(value.as_double(), spec);
  } else {
    const Int i = value.as_int();
    const int base = spec.type == 'x' || spec.type == 'X' ? 16
                     : spec.type == 'o'                   ? 8
                     : spec.type == 'b'                   ? 2
                                                          : 10;
    digits = digits_in_base(i, base, spec.type == 'X');
    if (spec.alternate && base != 10) digits = std::string("0") + spec.type + digits;
    if (i < 0) digits = "-" + digits;
  }
  const bool negative = !digits.empty() && digits[0] == '-';
  if (negative) digits.erase(0, 1);
  if (spec.comma) group_thousands(digits, ',');
  if (spec.underscore) group_thousands(digits, '_');
  if (negative) return "-" + digits;
  return spec.sign == '-' ? digits : spec.sign + digits;
}

int64_t read_number(std::string_view text, size_t& i, int64_t limit) {
  int64_t value = 0;
  for (; i < text.size() && digit_value(text[i]) < 10; ++i) {
    value = value * 10 + digit_value(text[i]);
    if (value > limit) fail("a field's width or precision exceeds the limit");
  }
  return value;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const std::string_view fill = first_character(text);
  const auto is_align = [](std::string_view s) {
    return !s.empty() && std::string_view("<>^=").find(s[0]) != std::string_view::npos;
  };
  if (is_align(text.substr(fill.size()))) {
    spec.fill = fill;
    spec.align = text[fill.size()];
    i = fill.size() + 1;
  } else if (is_align(text)) {
    spec.align = text[i++];
  }
  const auto flag = [&](char c) { return i < text.size() && text[i] == c && ++i > 0; };
  if (i < text.size() && std::string_view("+- ").find(text[i]) != std::string_view::npos)
    spec.sign = text[i++];
  spec.alternate = flag('#');
  if (flag('0') && spec.align == '\0') {
    spec.fill = "0";
    spec.align = '=';
  }
  spec.width = read_number(text, i, kMaxWidth);
  spec.comma = flag(',');
  spec.underscore = flag('_');
  if (flag('.')) {
    if (i >= text.size() || digit_value(text[i]) > 9) fail("a format's precision is missing");
    spec.precision = read_number(text, i, kMaxPrecision);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i != text.size()) fail(fmt::format("invalid format specifier '{}'", text));
  return spec;
}

std::string cut(const std::string& text, int64_t length) {
  size_t end = 0;
  for (int64_t i = 0; end < text.size() && i < length; ++i)
    end += first_character(std::string_view(text).substr(end)).size();
  return text.substr(0, end);
}

std::string format_with_spec(Heap& heap, const Value& value, std::string_view text) {
  if (text.empty()) return to_str(heap, value);
  const Spec spec = parse_spec(text);
  if (value.is(Kind::kString)) {
    if ((spec.type != '\0' && spec.type != 's') || spec.align == '=')
      fail("a number format is applied to a string");
    return pad(heap, spec.precision < 0 ? to_str(heap, value) : cut(value.text(), spec.precision),
               spec, '<');
  }
  if (!value.is_number())
    fail(fmt::format("unsupported format string passed to {}", type_name(value)));
  const std::string_view allowed = value.is(Kind::kFloat) ? "eEfFgG%" : "dxXobeEfFgG%";
  if (spec.type != '\0' && allowed.find(spec.type) == std::string_view::npos) {
    fail(fmt::format("unknown format code '{}' for an object of type '{}'", spec.type,
                     type_name(value)));
  }
  if (value.is(Kind::kBool) && spec.type == '\0')
    return pad(heap, value.as_bool() ? "1" : "0", spec, '>');
  return pad(heap, format_number(heap, value, spec), spec, '>');
}

// One conversion of "%..." % values.
class PercentFormatter {
 public:
  PercentFormatter(Heap& heap, const std::string& format, const Value& arguments)
      : heap_(heap), format_(format), arguments_(arguments) {}

  std::string run() {
    std::string out;
    while (i_ < format_.size()) {
      const size_t percent = std::min(format_.find('%', i_), format_.size());
      out.append(format_, i_, percent - i_);
      i_ = percent;
      if (i_ < format_.size()) out += convert();
      heap_.charge(1);
      heap_.check_size(out.size());
    }
    const bool single = !arguments_.is(Kind::kTuple);
    const size_t given = single ? 1 : arguments_.items().size();
    if (!by_name_ && used_ < given && !(single && used_ == 0 && accepts_unused())) {
      fail("not all arguments converted during string formatting");
    }
    return out;
  }

 private:
  bool accepts_unused() const { return arguments_.is(Kind::kDict) || arguments_.is(Kind::kList); }

  Value next_argument() {
    if (!arguments_.is(Kind::kTuple)) {
      if (used_++ > 0) fail("not enough arguments for format string");
      return arguments_;
    }
    if (used_ >= arguments_.items().size()) fail("not enough arguments for format string");
    return arguments_.items()[used_++];
  }

  int64_t read_size(int64_t limit) {
    if (i_ < format_.size() && format_[i_] == '*') {
      ++i_;
      const int64_t size = optional_int(next_argument(), 0, "a field's width");
      if (size > limit || size < -limit) fail("a field's width or precision exceeds the limit");
      return size;
    }
    return read_number(format_, i_, limit);
  }

  Value named_argument() {
    const size_t end = format_.find(')', i_);
    if (end == std::string::npos) fail("incomplete format key");
    if (!arguments_.is(Kind::kDict)) fail("format requires a mapping");
    const std::string key = format_.substr(i_ + 1, end - i_ - 1);
    const Value* value = arguments_.dict().find(std::string_view(key));
    if (value == nullptr) fail(fmt::format("the format needs key '{}', which is missing", key));
    i_ = end + 1;
    by_name_ = true;
    return *value;
  }

  std::string convert() {
    ++i_;
    if (i_ < format_.size() && format_[i_] == '%') {
      ++i_;
      return "%";
    }
    Value value;
    if (i_ < format_.size() && format_[i_] == '(') value = named_argument();
    Spec spec;
    for (; i_ < format_.size() &&
           std::string_view("-+ #0").find(format_[i_]) != std::string_view::npos;
         ++i_) {
      const char c = format_[i_];
      if (c == '-') spec.align = '<';
      if (c == '+' || (c == ' ' && spec.sign != '+')) spec.sign = c;
      if (c == '#') spec.alternate = true;
      if (c == '0') spec.fill = "0";
    }
    spec.width = read_size(kMaxWidth);
    if (spec.width < 0) {
      spec.align = '<';
      spec.width = -spec.width;
    }
    if (i_ < format_.size() && format_[i_] == '.') {
      ++i_;
      spec.precision = std::max<int64_t>(0, read_size(kMaxPrecision));
    }
    if (i_ >= format_.size()) fail("incomplete format");
    spec.type = format_[i_++];
    if (value.is(Kind::kMissing)) value = next_argument();
    return convert(value, spec);
  }

  std::string convert(const Value& value, Spec spec) {
    if (spec.type == 's' || spec.type == 'r') {
      std::string text;
      if (spec.type == 's') {
        text = to_str(heap_, value);
      } else {
        append_repr(heap_, text, value);
      }
      spec.fill = " ";
      return pad(heap_, spec.precision < 0 ? text : cut(text, spec.precision), spec, '>');
    }
    if (spec.type == 'c') {
      std::string text = value.is(Kind::kString) ? value.text() : "";
      if (value.is_integral()) {
        if (value.as_int() < 0 || value.as_int() > 0x10FFFF || (value.as_int() >> 11) == 0x1B)
          fail("%c out of range");
        append_utf8(text, static_cast<uint32_t>(value.as_int()));
      }
      if (code_points_before(text, text.size()) != 1) fail("%c requires int or char");
      spec.fill = " ";
      return pad(heap_, text, spec, '>');
    }
    if (!value.is_number())
      fail(fmt::format("a number is required for %{}, not {}", spec.type, type_name(value)));
    return convert_number(value, spec);
  }

  std::string convert_number(Value value, Spec spec) {
    if (spec.fill == "0") spec.align = spec.align == '<' ? '<' : '=';
    if (spec.align == '<') spec.fill = " ";
    const bool integer = std::string_view("diuxXo").find(spec.type) != std::string_view::npos;
    if (!integer && std::string_view("eEfFgG").find(spec.type) == std::string_view::npos) {
      fail(fmt::format("unsupported format character '{}'", spec.type));
    }
    if (integer && value.is(Kind::kFloat)) {
      if (std::string_view("xXo").find(spec.type) != std::string_view::npos)
        fail("an integer is required, not float");
      if (!(std::abs(value.as_double()) < 1e38)) fail("cannot convert this float to an integer");
      value = Value::integer(static_cast<Int>(value.as_double()));
    }
    if (spec.type == 'i' || spec.type == 'u') spec.type = 'd';
    std::string digits = format_number(heap_, value, spec);
    if (integer && spec.precision >= 0) {
      const size_t sign = !digits.empty() && digit_value(digits[0]) > 35 ? 1 : 0;
      const auto length = static_cast<int64_t>(digits.size() - sign);
      if (length < spec.precision)
        digits.insert(sign, static_cast<size_t>(spec.precision - length), '0');
    }
    return pad(heap_, digits, spec, '>');
  }

  Heap& heap_;
  const std::string& format_;
  const Value& arguments_;
  size_t i_ = 0, used_ = 0;
  bool by_name_ = false;
};

// "{}".format(...): fields name arguments, their items and attributes.
class BraceFormatter {
 public:
  BraceFormatter(Interpreter& interpreter, const Arguments& arguments)
      : interpreter_(interpreter), arguments_(arguments) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) fail("format fields are nested too deeply");
    std::string out;
    for (size_t i = 0; i < format.size();) {
      const char c = format[i];
      if (c != '{' && c != '}') {
        out += c;
        ++i;
      } else if (i + 1 < format.size() && format[i + 1] == c) {
        out += c;
        i += 2;
      } else if (c == '}') {
        fail("single '}' encountered in format string");
      } else {
        const size_t end = field_end(format, i + 1);
        out += format_field(format.substr(i + 1, end - i - 1), depth);
        interpreter_.charge(1);
        interpreter_.heap().check_size(out.size());
        i = end + 1;
      }
    }
    return out;
  }

 private:
  static size_t field_end(std::string_view format, size_t i) {
    for (int open = 1; i < format.size(); ++i) {
      if (format[i] == '{') ++open;
      if (format[i] == '}' && --open == 0) return i;
    }
    fail("expected '}' before end of string");
  }

  std::string format_field(std::string_view field, int depth) {
    const size_t name_end = std::min(field.find_first_of("!:"), field.size());
    Value value = lookup(field.substr(0, name_end));
    std::string_view rest = field.substr(name_end);
    if (!rest.empty() && rest[0] == '!') {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion != 'r' && conversion != 's') fail("unknown conversion in a format field");
      std::string text;
      if (conversion == 'r') append_repr(interpreter_.heap(), text, value);
      value =
          interpreter_.heap().string(conversion == 'r' ? text : to_str(interpreter_.heap(), value));
      rest.remove_prefix(2);
    }
    if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    const std::string spec = rest.empty() ? "" : run(rest.substr(1), depth + 1);
    return format_with_spec(interpreter_.heap(), value, spec);
  }

  Value lookup(std::string_view name) {
    const size_t end = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, end));
    for (size_t i = end; i < name.size();) {
      const bool attribute = name[i] == '.';
      const size_t stop =
          attribute ? std::min(name.find_first_of(".[", i + 1), name.size()) : name.find(']', i);
      if (stop == std::string_view::npos || stop == i + 1)
        fail("the name in a format field is malformed");
      const std::string key(name.substr(i + 1, stop - i - 1));
      const auto number = attribute ? std::nullopt : parse_python_int(key, 10);
      value = attribute ? interpreter_.get_own_attribute(value, key)
                        : interpreter_.get_item(value, number ? Value::integer(*number)
                                                              : interpreter_.heap().string(key));
      if (value.is(Kind::kUndefined)) fail(value.get<UndefinedObject>().message);
      i = attribute ? stop : stop + 1;
    }
    return value;
  }

  Value argument(std::string_view name) {
    const auto index = name.empty() ? std::optional<Int>(next_++) : parse_python_int(name, 10);
    if (index) {
      (name.empty() ? automatic_ : manual_) = true;
      if (automatic_ && manual_) fail("a format mixes automatic and numbered fields");
      if (*index < 0 || *index >= static_cast<Int>(arguments_.positional.size())) {
        fail("a format field refers to an argument that is missing");
      }
      return arguments_.positional[static_cast<size_t>(*index)];
    }
    interpreter_.charge(arguments_.keywords.size());
    for (const auto& [key, value] : arguments_.keywords) {
      if (key == name) return value;
    }
    fail(fmt::format("the format needs argument '{}', which is missing", name));
  }

  Interpreter& interpreter_;
  const Arguments& arguments_;
  Int next_ = 0;
  bool automatic_ = false, manual_ = false;
};

}  // namespace

std::string format_percent(Heap& heap, const StringObject& format, const Value& arguments) {
  heap.charge_characters(format.text.size());
  return PercentFormatter(heap, format.text, arguments).run();
}

std::string format_braces(Interpreter& interpreter, const StringObject& format,
                          const Arguments& arguments) {
  interpreter.heap().charge_characters(format.text.size() * 2);
  return BraceFormatter(interpreter, arguments).run(format.text, 0);
}

std::string escape_html(Heap& heap, std::string_view text) {
  heap.charge_characters(text.size());
  std::string out;
  for (const char c : text) {
    heap.check_text(out);
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&#34;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

}  // namespace slimexx::text::jinja
