// json.dumps, for the tojson filter.
#include <algorithm>
#include <cmath>

#include "slimexx/base/strings.h"
#include "text/jinja/python.h"

namespace slimexx::text::jinja {
namespace {

class JsonWriter {
 public:
  JsonWriter(Heap& heap, const JsonStyle& style) : heap_(heap), style_(style) {}

  void write(const Value& value, int depth) {
    heap_.charge(2);
    if (depth > kMaxContainerDepth) fail("values are nested too deeply for tojson");
    switch (value.kind()) {
      case Kind::kString:
        write_string(value.text());
        break;
      case Kind::kNone:
      case Kind::kBool:
      case Kind::kInt:
      case Kind::kFloat:
        out_ += scalar(value);
        break;
      case Kind::kList:
      case Kind::kTuple:
        write_list(value.items(), depth);
        break;
      case Kind::kDict:
        write_dict(value.dict(), depth);
        break;
      default:
        fail(fmt::format("Object of type {} is not JSON serializable", type_name(value)));
    }
    heap_.check_text(out_);
  }
  std::string take() { return std::move(out_); }

 private:
  static std::string scalar(const Value& value) {
    switch (value.kind()) {
      case Kind::kNone:
        return "null";
      case Kind::kBool:
        return value.as_bool() ? "true" : "false";
      case Kind::kInt:
        return format_int(value.as_int());
      default: {
        const double number = value.as_double();
        if (std::isnan(number)) return "NaN";
        if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
        return format_python_float(number);
      }
    }
  }

  void new_line(int depth) {
    out_ += '\n';
    for (int i = 0; i < depth; ++i) {
      out_ += style_.indent;
      heap_.check_text(out_);
    }
    heap_.charge_bytes(static_cast<uint64_t>(depth) * (style_.indent.size() + 8));
  }
  void separate(bool first, int depth) {
    if (!first) out_ += style_.item_separator;
    heap_.check_text(out_);
    if (style_.pretty) new_line(depth + 1);
  }

  void write_list(const Values& items, int depth) {
    out_ += '[';
    for (size_t i = 0; i < items.size(); ++i) {
      separate(i == 0, depth);
      write(items[i], depth + 1);
    }
    if (style_.pretty && !items.empty()) new_line(depth);
    out_ += ']';
  }

  void write_key(const Value& key) {
    if (key.is(Kind::kString)) {
      write_string(key.text());
    } else if (key.is_number() || key.is(Kind::kNone)) {
      out_ += '"' + scalar(key) + '"';
    } else {
      fail(fmt::format("keys must be str, int, float, bool or None, not {}", type_name(key)));
    }
    out_ += style_.key_separator;
    heap_.check_text(out_);
  }

  void write_dict(const DictObject& dict, int depth) {
    heap_.charge(dict.entries.size());
    std::vector<const std::pair<Value, Value>*> entries;
    for (const auto& entry : dict.entries) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
        return less_values(a->first, b->first);
      });
    }
    out_ += '{';
    for (size_t i = 0; i < entries.size(); ++i) {
      separate(i == 0, depth);
      write_key(entries[i]->first);
      write(entries[i]->second, depth + 1);
    }
    if (style_.pretty && !entries.empty()) new_line(depth);
    out_ += '}';
  }

  void write_escaped(uint32_t c) {
    heap_.charge(2);
    heap_.check_text(out_);
    if (c < 0x10000) {
      out_ += fmt::format("\\u{:04x}", c);
      return;
    }
    const uint32_t rest = c - 0x10000;
    out_ += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
  }

  void write_string(std::string_view text) {
    static constexpr std::string_view kFrom = "\"\\\n\r\t\b\f", kTo = "\"\\nrtbf";
    heap_.charge_characters(text.size());
    out_ += '"';
    for (size_t i = 0; i < text.size();) {
      const size_t begin = i;
      const uint32_t c = next_code_point(text, i);
      const size_t short_form =
          c < 0x80 ? kFrom.find(static_cast<char>(c)) : std::string_view::npos;
      if (short_form != std::string_view::npos) {
        out_ += '\\';
        out_ += kTo[short_form];
      } else if (c < 0x20 || (style_.ensure_ascii && c > 0x7E)) {
        write_escaped(c);
      } else {
        out_ += text.substr(begin, i - begin);
      }
    }
    out_ += '"';
  }

  Heap& heap_;
  const JsonStyle& style_;
  std::string out_;
};

}  // namespace

std::string dump_json(Heap& heap, const Value& value, const JsonStyle& style) {
  JsonWriter writer(heap, style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace slimexx::text::jinja
