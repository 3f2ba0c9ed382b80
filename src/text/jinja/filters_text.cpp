// Filters on text, and tojson.
#include "slimexx/base/strings.h"

#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

using Convert = std::string (*)(std::string_view);
template <Convert convert>
Value converted(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("filter", arguments, {}, 0);
  const TextOf text = in.text_of(input);
  in.heap().charge_characters(2 * text->size());
  return in.heap().string(convert(*text));
}

// The title filter, which differs from str.title: words begin after white space and - ( { [ <, and
// the other letters become lower case.
std::string title_words(std::string_view text) {
  std::string out, word;
  const auto flush = [&] {
    const std::string_view head = first_character(word);
    out += upper_case(head) + lower_case(std::string_view(word).substr(head.size()));
    word.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    const uint32_t c = next_code_point(text, i);
    if (is_space(c) ||
        std::string_view("-({[<").find(static_cast<char>(c)) != std::string_view::npos) {
      if (c < 0x80 || is_space(c)) {
        flush();
        out += text.substr(begin, i - begin);
        continue;
      }
    }
    word += text.substr(begin, i - begin);
  }
  flush();
  return out;
}

Value filter_string(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("string", arguments, {}, 0);
  return to_string_value(in.heap(), input);
}

Value filter_trim(Interpreter& in, const Value& input, const Arguments& arguments) {
  Values bound = bind_arguments("trim", arguments, {"chars"}, 0);
  const MethodEntry* strip = find_string_method("strip");
  return strip->call(in, to_string_value(in.heap(), input),
                     {bound[0].is(Kind::kMissing) ? Values{} : bound, {}});
}

Value filter_safe(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("safe", arguments, {}, 0);
  return in.heap().markup(*in.text_of(input));
}

bool is_markup(const Value& value) {
  return value.is(Kind::kString) && value.get<StringObject>().markup;
}

template <bool force>
Value filter_escape(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("escape", arguments, {}, 0);
  if (!force && is_markup(input)) return input;
  return in.heap().markup(escape_html(in.heap(), *in.text_of(input)));
}

Value filter_replace(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("replace", arguments, {"old", "new", "count"}, 2);
  return in.heap().string(replace_text(in.heap(), *in.text_of(input), *in.text_of(bound[0]),
                                       *in.text_of(bound[1]), optional_int(bound[2], -1, "count")));
}

Value filter_indent(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("indent", arguments, {"width", "first", "blank"}, 0);
  Heap& heap = in.heap();
  std::string indention;
  if (bound[0].is(Kind::kString)) {
    indention = bound[0].text();
  } else {
    const int64_t width =
        bound[0].is(Kind::kNone) ? -1 : optional_int(bound[0], 4, "indent's width");
    if (bound[0].is(Kind::kNone)) fail("indent's width must be an integer or a string");
    heap.check_size(static_cast<uint64_t>(std::max<int64_t>(width, 0)));
    heap.charge_bytes(static_cast<uint64_t>(std::max<int64_t>(width, 0)));
    indention.assign(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (input.is(Kind::kUndefined)) fail(input.get<UndefinedObject>().message);
  if (!input.is(Kind::kString)) fail(fmt::format("indent needs text, not {}", type_name(input)));
  // Adds a line break so that text without one still counts as one line, even if empty.
  const Values lines = lines_of(heap, *in.text_of(input) + "\n", false);
  std::string out = is_true(bound[1]) ? indention : "";
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i > 0 && (is_true(bound[2]) || !lines[i].text().empty())) out += indention;
    out += lines[i].text();
    heap.check_size(out.size());
  }
  return heap.string(std::move(out));
}

Value filter_center(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound = bind_arguments("center", arguments, {"width"}, 0);
  const TextOf text = in.text_of(input);
  return in.heap().string(
      justify_text(in.heap(), text.object(), optional_int(bound[0], 80, "width"), " ", '^'));
}

Value filter_format(Interpreter& in, const Value& input, const Arguments& arguments) {
  if (!arguments.positional.empty() && !arguments.keywords.empty()) {
    fail("format takes positional or keyword arguments, not both");
  }
  Value values = in.heap().tuple(arguments.positional);
  if (!arguments.keywords.empty()) {
    values = Value(Kind::kDict, in.heap().make<DictObject>());
    for (const auto& [key, value] : arguments.keywords)
      values.dict().set(in.heap().string(key), value);
  }
  const TextOf format = in.text_of(input);
  return in.heap().string(format_percent(in.heap(), format.object(), values));
}

Value filter_wordcount(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("wordcount", arguments, {}, 0);
  const TextOf text = in.text_of(input);
  in.heap().charge_characters(2 * text->size());
  int64_t words = 0;
  bool inside = false;
  for (size_t i = 0; i < text->size();) {
    const bool part = is_word_character(next_code_point(*text, i));
    words += part && !inside;
    inside = part;
  }
  return Value::integer(words);
}

Value filter_truncate(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0);
  const TextOf text = in.text_of(input);
  const Value end =
      bound[2].is(Kind::kMissing) ? in.heap().string("...") : to_string_value(in.heap(), bound[2]);
  const int64_t length = optional_int(bound[0], 255, "length"),
                leeway = optional_int(bound[3], 5, "leeway");
  const int64_t end_length = end.get<StringObject>().length;
  if (length < end_length) fail(fmt::format("truncate's length is below {}", end_length));
  if (leeway < 0) fail("truncate's leeway is negative");
  const int64_t input_length = length_of(input);
  if (input_length < 0) fail(fmt::format("object of type '{}' has no len()", type_name(input)));
  if (input_length <= length || input_length - length <= leeway) return input;
  if (!input.is(Kind::kString)) fail(fmt::format("truncate needs text, not {}", type_name(input)));
  in.heap().charge_characters(text->size());
  std::string cut = text->substr(0, byte_offset(text.object(), length - end_length));
  if (!is_true(bound[1])) {
    if (const size_t blank = cut.rfind(' '); blank != std::string::npos) cut.resize(blank);
  }
  return in.heap().string(cut + end.text());
}

// In a query a slash is quoted too, and a space becomes a plus.
std::string quote_url(Heap& heap, std::string_view text, bool query) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  heap.charge_characters(2 * text.size());
  const std::string_view marks = query ? "_.-~" : "_.-~/";
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (digit_value(c) < 36 || marks.find(c) != std::string_view::npos) {
      out += c;
    } else if (query && c == ' ') {
      out += '+';
    } else {
      out += '%';
      out += kDigits[byte >> 4];
      out += kDigits[byte & 15];
    }
    heap.check_text(out);
  }
  return out;
}

Value filter_urlencode(Interpreter& in, const Value& input, const Arguments& arguments) {
  bind_arguments("urlencode", arguments, {}, 0);
  if (input.is(Kind::kString) || !is_iterable(input))
    return in.heap().string(quote_url(in.heap(), *in.text_of(input), false));
  std::string out;
  const Value view = input.is(Kind::kDict)
                         ? Value(Kind::kView, in.heap().make<ViewObject>(input, ViewKind::kItems))
                         : input;
  for (const Value& pair : in.list_of(view)) {
    const Values both = in.list_of(pair);
    if (both.size() != 2) fail("urlencode needs pairs");
    if (!out.empty()) out += '&';
    out += quote_url(in.heap(), *in.text_of(both[0]), true) + '=' +
           quote_url(in.heap(), *in.text_of(both[1]), true);
    in.heap().check_size(out.size());
  }
  return in.heap().string(std::move(out));
}

Value filter_tojson(Interpreter& in, const Value& input, const Arguments& arguments) {
  const Values bound =
      bind_arguments("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"}, 0);
  JsonStyle style;
  style.ensure_ascii = is_true(bound[0]);
  style.sort_keys = is_true(bound[3]);
  if (!bound[1].is(Kind::kMissing) && !bound[1].is(Kind::kNone)) {
    constexpr int64_t kMaxIndent = 1000;
    style.pretty = true;
    style.item_separator = ",";
    const int64_t blanks =
        bound[1].is(Kind::kString) ? 0 : optional_int(bound[1], 0, "tojson's indent");
    if (blanks > kMaxIndent) fail(fmt::format("tojson's indent exceeds {}", kMaxIndent));
    style.indent = bound[1].is(Kind::kString)
                       ? bound[1].text()
                       : std::string(static_cast<size_t>(std::max<int64_t>(blanks, 0)), ' ');
  }
  if (!bound[2].is(Kind::kMissing) && !bound[2].is(Kind::kNone)) {
    const Values separators = in.list_of(bound[2]);
    if (separators.size() != 2 || !separators[0].is(Kind::kString) ||
        !separators[1].is(Kind::kString)) {
      fail("tojson's separators must be two strings");
    }
    style.item_separator = separators[0].text();
    style.key_separator = separators[1].text();
  }
  return in.heap().string(dump_json(in.heap(), input, style));
}

constexpr FilterEntry kFilters[] = {
    {"upper", converted<upper_case>},
    {"lower", converted<lower_case>},
    {"capitalize", converted<capitalize_case>},
    {"title", converted<title_words>},
    {"string", filter_string},
    {"trim", filter_trim},
    {"safe", filter_safe},
    {"escape", filter_escape<false>},
    {"e", filter_escape<false>},
    {"forceescape", filter_escape<true>},
    {"replace", filter_replace},
    {"indent", filter_indent},
    {"center", filter_center},
    {"format", filter_format},
    {"wordcount", filter_wordcount},
    {"truncate", filter_truncate},
    {"urlencode", filter_urlencode},
    {"tojson", filter_tojson},
};

}  // namespace

FilterTable text_filters() { return {kFilters, std::size(kFilters)}; }

}  // namespace slimexx::text::jinja
