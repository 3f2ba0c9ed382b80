// str() and repr() as in Python.
#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <string>

#include "slimexx/base/strings.h"
#include "text/jinja/python.h"
#include "text/jinja/syntax/ast.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {

std::string format_int(Int value) {
  if (value >= INT64_MIN && value <= INT64_MAX) return fmt::to_string(static_cast<int64_t>(value));
  // Eighteen digits at a time, because 128-bit division is slow.
  constexpr Int kChunk = 1'000'000'000'000'000'000;
  const auto rest = static_cast<int64_t>(value % kChunk);
  return format_int(value / kChunk) + fmt::format("{:018}", std::abs(rest));
}

// Shortest digits; plain notation for exponents -4 .. 15, like float.__repr__.
std::string format_python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto scientific =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  const std::string text(buffer, scientific.ptr);
  const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
  if (exponent < -4 || exponent >= 16) return text;
  const auto fixed =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::fixed);
  std::string plain(buffer, fixed.ptr);
  if (plain.find('.') == std::string::npos) plain += ".0";
  return plain;
}

namespace {

void append_escape(Heap& heap, std::string& out, uint32_t c) {
  out += c < 0x100     ? fmt::format("\\x{:02x}", c)
         : c < 0x10000 ? fmt::format("\\u{:04x}", c)
                       : fmt::format("\\U{:08x}", c);
  heap.check_text(out);
  heap.charge(1);
}

void append_quoted(Heap& heap, std::string& out, std::string_view text) {
  heap.charge_characters(text.size());
  const bool double_quoted =
      text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos;
  const char quote = double_quoted ? '"' : '\'';
  out += quote;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = next_code_point(text, i);
    if (c == '\\' || c == static_cast<uint32_t>(quote)) {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, i - begin);
    } else {
      append_escape(heap, out, c);
    }
  }
  out += quote;
  heap.check_text(out);
}

void append_items(Heap& heap, std::string& out, const Values& items, int depth) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(heap, out, items[i], depth + 1);
  }
}

void append_dict(Heap& heap, std::string& out, const DictObject& dict, int depth) {
  out += '{';
  bool first = true;
  for (const auto& [key, value] : dict.entries) {
    if (!first) out += ", ";
    first = false;
    append_repr(heap, out, key, depth + 1);
    out += ": ";
    append_repr(heap, out, value, depth + 1);
  }
  out += '}';
}

void append_view(Heap& heap, std::string& out, const Value& value, int depth) {
  out += type_name(value);
  out += "([";
  append_items(heap, out, iterate(heap, value), depth);
  out += "])";
}

void append_range(std::string& out, const RangeObject& range) {
  out += "range(" + format_int(range.start) + ", " + format_int(range.stop);
  if (range.step != 1) out += ", " + format_int(range.step);
  out += ')';
}

void append_loop(std::string& out, const LoopObject& loop) {
  out += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, loop.length);
}

}  // namespace

void append_repr(Heap& heap, std::string& out, const Value& value, int depth) {
  if (depth > kMaxContainerDepth) fail("values are nested too deeply to print");
  heap.charge(2);
  switch (value.kind()) {
    case Kind::kString: {
      const bool markup = value.get<StringObject>().markup;
      if (markup) out += "Markup(";
      append_quoted(heap, out, value.text());
      if (markup) out += ')';
      break;
    }
    case Kind::kMissing:
    case Kind::kUndefined:
      out += "Undefined";
      break;
    case Kind::kNamespace:
      out += "<Namespace ";
      append_repr(heap, out, value.get<NamespaceObject>().attributes, depth + 1);
      out += '>';
      break;
    case Kind::kNone:
      out += "None";
      break;
    case Kind::kBool:
      out += value.as_bool() ? "True" : "False";
      break;
    case Kind::kInt:
      out += format_int(value.as_int());
      break;
    case Kind::kFloat:
      out += format_python_float(value.as_double());
      break;
    case Kind::kList:
      out += '[';
      append_items(heap, out, value.items(), depth);
      out += ']';
      break;
    case Kind::kTuple:
      out += '(';
      append_items(heap, out, value.items(), depth);
      out += value.items().size() == 1 ? ",)" : ")";
      break;
    case Kind::kDict:
      append_dict(heap, out, value.dict(), depth);
      break;
    case Kind::kView:
      append_view(heap, out, value, depth);
      break;
    case Kind::kRange:
      append_range(out, value.get<RangeObject>());
      break;
    case Kind::kMacro:
      out += "<Macro ";
      append_quoted(heap, out, value.get<MacroObject>().function.name);
      out += '>';
      break;
    case Kind::kLoop:
      append_loop(out, value.get<LoopObject>());
      break;
    default:
      out += fmt::format("<{} object>", type_name(value));
      break;
  }
  heap.check_text(out);
}

void append_str(Heap& heap, std::string& out, const Value& value) {
  if (value.is(Kind::kString)) {
    heap.check_size(out.size() + value.text().size());
    heap.charge_bytes(value.text().size());
    out += value.text();
  } else if (!value.is(Kind::kUndefined) && !value.is(Kind::kMissing)) {
    append_repr(heap, out, value);
  }
}

std::string to_str(Heap& heap, const Value& value) {
  std::string out;
  append_str(heap, out, value);
  return out;
}

Value to_string_value(Heap& heap, const Value& value) {
  return value.is(Kind::kString) ? value : heap.string(to_str(heap, value));
}

}  // namespace slimexx::text::jinja
