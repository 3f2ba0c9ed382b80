// Methods of str. Positions count code points; the text is UTF-8.
#include <algorithm>
#include <optional>

#include "slimexx/base/strings.h"
#include "text/jinja/builtins.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace slimexx::text::jinja {
namespace {

constexpr auto npos = std::string::npos;

const std::string& require_string(const Value& value, const char* what) {
  if (!value.is(Kind::kString))
    fail(fmt::format("{} must be a string, not {}", what, type_name(value)));
  return value.text();
}

bool absent(const Value& value) { return value.is(Kind::kMissing) || value.is(Kind::kNone); }

Value no_arguments(Interpreter& in, const Value& self, const Arguments& arguments) {
  bind_arguments("str method", arguments, {}, 0);
  in.heap().charge_characters(2 * self.text().size());
  return self;
}

using Convert = std::string (*)(std::string_view);
template <Convert convert>
Value converted(Interpreter& in, const Value& self, const Arguments& arguments) {
  no_arguments(in, self, arguments);
  return in.heap().string(convert(self.text()));
}

template <CharacterClass wanted>
Value all_are(Interpreter& in, const Value& self, const Arguments& arguments) {
  no_arguments(in, self, arguments);
  return Value::boolean(all_characters(self.text(), wanted));
}

Value is_title(Interpreter& in, const Value& self, const Arguments& arguments) {
  no_arguments(in, self, arguments);
  return Value::boolean(is_title_case(self.text()));
}
Value is_ascii(Interpreter&, const Value& self, const Arguments& arguments) {
  bind_arguments("isascii", arguments, {}, 0);
  return Value::boolean(self.get<StringObject>().ascii());
}

std::string_view strip_text(Heap& heap, std::string_view text, const Value& characters, bool left,
                            bool right) {
  if (absent(characters)) {
    const size_t whole = text.size();
    if (left) text = strip_space_left(text);
    if (right) text = strip_space_right(text);
    heap.charge_characters(whole - text.size());
    return text;
  }
  const std::string& set = require_string(characters, "strip's argument");
  const auto in_set = [&](std::string_view c) {
    heap.charge_bytes(set.size());
    return !c.empty() && set.find(c) != npos;
  };
  while (left && in_set(first_character(text))) text.remove_prefix(first_character(text).size());
  while (right && !text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (text[begin] & 0xC0) == 0x80) --begin;
    if (!in_set(text.substr(begin))) break;
    text = text.substr(0, begin);
  }
  return text;
}

template <bool left, bool right>
Value strip(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("strip", arguments, {"chars"}, 0);
  in.heap().charge_bytes(self.text().size());
  return in.heap().string(std::string(strip_text(in.heap(), self.text(), bound[0], left, right)));
}

// The part of the text between start and end, in bytes; nothing if start is beyond the end of the
// text.
struct Window {
  std::string_view text;
  size_t offset = 0;
};
std::optional<Window> select_window(Interpreter& in, const Value& self, const Value& start,
                                    const Value& end) {
  const auto& string = self.get<StringObject>();
  const auto clip = [&](const Value& value, int64_t fallback) {
    int64_t i = optional_int(value, fallback, "a position");
    if (i < 0) i = std::max<int64_t>(0, i + string.length);
    return i;
  };
  const int64_t from = clip(start, 0), to = std::min(clip(end, string.length), string.length);
  if (from > to) return std::nullopt;
  in.heap().charge_characters(string.ascii() ? 0 : string.text.size());
  const size_t begin = byte_offset(string, from);
  return Window{std::string_view(string.text).substr(begin, byte_offset(string, to) - begin),
                begin};
}

template <bool at_end>
Value has_affix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound =
      bind_arguments(at_end ? "endswith" : "startswith", arguments, {"affix", "start", "end"}, 1);
  const auto window = select_window(in, self, bound[1], bound[2]);
  const auto matches = [&](const Value& affix) {
    const std::string& part = require_string(affix, "a prefix or suffix");
    if (!window || part.size() > window->text.size()) return false;
    in.heap().charge_bytes(part.size());
    return window->text.substr(at_end ? window->text.size() - part.size() : 0, part.size()) == part;
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  const Values& affixes = bound[0].items();
  in.charge(affixes.size());
  return Value::boolean(std::any_of(affixes.begin(), affixes.end(), matches));
}

size_t find_last(Heap& heap, std::string_view text, std::string_view part) {
  heap.charge_characters(text.size() + part.size());
  const std::string backwards(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const size_t at = find_text(heap, backwards, wanted, 0);
  return at == npos ? npos : text.size() - at - part.size();
}

template <bool last>
int64_t find_position(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("find", arguments, {"sub", "start", "end"}, 1);
  const std::string& part = require_string(bound[0], "the text to find");
  const auto window = select_window(in, self, bound[1], bound[2]);
  if (!window) return -1;
  const size_t at =
      last ? find_last(in.heap(), window->text, part) : find_text(in.heap(), window->text, part, 0);
  if (at == npos) return -1;
  const auto& string = self.get<StringObject>();
  const size_t offset = window->offset + at;
  in.heap().charge_characters(string.ascii() ? 0 : offset);
  return string.ascii() ? static_cast<int64_t>(offset) : code_points_before(string.text, offset);
}
template <bool last, bool must>
Value find(Interpreter& in, const Value& self, const Arguments& arguments) {
  const int64_t at = find_position<last>(in, self, arguments);
  if (must && at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("count", arguments, {"sub", "start", "end"}, 1);
  const std::string& part = require_string(bound[0], "the text to count");
  const auto window = select_window(in, self, bound[1], bound[2]);
  if (!window) return Value::integer(0);
  if (part.empty()) {
    in.heap().charge_characters(window->text.size());
    return Value::integer(code_points_before(window->text, window->text.size()) + 1);
  }
  int64_t found = 0;
  for (size_t at = find_text(in.heap(), window->text, part, 0); at != npos;
       at = find_text(in.heap(), window->text, part, at + part.size())) {
    ++found;
  }
  return Value::integer(found);
}

Value replace(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("replace", arguments, {"old", "new", "count"}, 2);
  return in.heap().string(replace_text(
      in.heap(), self.text(), require_string(bound[0], "replace's argument"),
      require_string(bound[1], "replace's argument"), optional_int(bound[2], -1, "count")));
}

// Splits into words at runs of white space, at most `limit` times; the last part is the rest.
Values split_space(Heap& heap, std::string_view text, int64_t limit) {
  Values parts;
  text = strip_space_left(text);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(heap.string(std::string(strip_space_right(text))));
      break;
    }
    size_t end = 0;
    while (end < text.size() && skip_space(text, end) == end)
      end += first_character(text.substr(end)).size();
    parts.push_back(heap.string(std::string(text.substr(0, end))));
    text = strip_space_left(text.substr(end));
  }
  return parts;
}

Values split_space_right(Heap& heap, std::string_view text, int64_t limit) {
  Values parts;
  text = strip_space_right(text);
  while (!text.empty()) {
    if (limit-- == 0) {
      parts.push_back(heap.string(std::string(strip_space_left(text))));
      break;
    }
    size_t begin = text.size();
    while (begin > 0) {
      size_t previous = begin - 1;
      while (previous > 0 && (text[previous] & 0xC0) == 0x80) --previous;
      if (skip_space(text, previous) != previous) break;
      begin = previous;
    }
    parts.push_back(heap.string(std::string(text.substr(begin))));
    text = strip_space_right(text.substr(0, begin));
  }
  std::reverse(parts.begin(), parts.end());
  return parts;
}

Values split_on(Heap& heap, std::string_view text, std::string_view separator, int64_t limit) {
  Values parts;
  size_t begin = 0;
  while (limit-- != 0) {
    const size_t end = find_text(heap, text, separator, begin);
    if (end == npos) break;
    parts.push_back(heap.string(std::string(text.substr(begin, end - begin))));
    begin = end + separator.size();
  }
  parts.push_back(heap.string(std::string(text.substr(begin))));
  return parts;
}

Values split_on_right(Heap& heap, std::string_view text, std::string_view separator,
                      int64_t limit) {
  heap.charge_characters(text.size() + separator.size());
  const std::string backwards(text.rbegin(), text.rend()),
      mark(separator.rbegin(), separator.rend());
  Values parts;
  size_t begin = 0, end = 0;
  const auto push = [&](size_t to) {
    std::string part(backwards, begin, to - begin);
    std::reverse(part.begin(), part.end());
    parts.push_back(heap.string(std::move(part)));
  };
  while (limit-- != 0 && (end = find_text(heap, backwards, mark, begin)) != npos) {
    push(end);
    begin = end + mark.size();
  }
  push(backwards.size());
  std::reverse(parts.begin(), parts.end());
  return parts;
}

template <bool right>
Value split_string(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("split", arguments, {"sep", "maxsplit"}, 0);
  const int64_t limit = std::max<int64_t>(-1, optional_int(bound[1], -1, "maxsplit"));
  Heap& heap = in.heap();
  if (absent(bound[0])) {
    heap.charge_characters(self.text().size());
    return heap.list(right ? split_space_right(heap, self.text(), limit)
                           : split_space(heap, self.text(), limit));
  }
  const std::string& separator = require_string(bound[0], "the separator");
  if (separator.empty()) fail("empty separator");
  Values parts = right ? split_on_right(heap, self.text(), separator, limit)
                       : split_on(heap, self.text(), separator, limit);
  in.charge(parts.size());
  return heap.list(std::move(parts));
}

template <bool last>
Value partition(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("partition", arguments, {"sep"}, 1);
  const std::string &separator = require_string(bound[0], "the separator"), &text = self.text();
  if (separator.empty()) fail("empty separator");
  Heap& heap = in.heap();
  const size_t at = last ? find_last(heap, text, separator) : find_text(heap, text, separator, 0);
  const Value empty = heap.string("");
  if (at == npos) return heap.tuple(last ? Values{empty, empty, self} : Values{self, empty, empty});
  return heap.tuple(
      {heap.string(text.substr(0, at)), bound[0], heap.string(text.substr(at + separator.size()))});
}

Value split_lines(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("splitlines", arguments, {"keepends"}, 0);
  return in.heap().list(lines_of(in.heap(), self.text(), is_true(bound[0])));
}

Value join(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("join", arguments, {"iterable"}, 1);
  const Values items = in.list_of(bound[0]);
  for (const Value& item : items) require_string(item, "an item of join");
  return join_values(in.heap(), items, self.text());
}

template <bool end>
Value remove_affix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("removeprefix", arguments, {"affix"}, 1);
  const std::string &affix = require_string(bound[0], "the affix"), &text = self.text();
  in.heap().charge_bytes(affix.size());
  const bool has = text.size() >= affix.size() &&
                   text.compare(end ? text.size() - affix.size() : 0, affix.size(), affix) == 0;
  if (!has) return self;
  return in.heap().string(end ? text.substr(0, text.size() - affix.size())
                              : text.substr(affix.size()));
}

// Pads the text with the fill character according to `align`.
template <char align>
Value justify(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("ljust", arguments, {"width", "fillchar"}, 1);
  const std::string fill = absent(bound[1]) ? " " : require_string(bound[1], "the fill character");
  if (fill.empty() || first_character(fill).size() != fill.size())
    fail("the fill character must be one character long");
  return in.heap().string(justify_text(in.heap(), self.get<StringObject>(),
                                       optional_int(bound[0], 0, "width"), fill, align));
}

Value zero_fill(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("zfill", arguments, {"width"}, 1);
  std::string text = justify_text(in.heap(), self.get<StringObject>(),
                                  optional_int(bound[0], 0, "width"), "0", '>');
  const std::string& own = self.text();
  if (!own.empty() && (own[0] == '-' || own[0] == '+'))
    std::swap(text[0], text[text.size() - own.size()]);
  return in.heap().string(std::move(text));
}

Value expand_tabs(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Values bound = bind_arguments("expandtabs", arguments, {"tabsize"}, 0);
  const int64_t size = std::clamp<int64_t>(optional_int(bound[0], 8, "tabsize"), 0, 1000);
  in.heap().charge_characters(self.text().size());
  std::string out;
  int64_t column = 0;
  for (const char c : self.text()) {
    const int64_t blanks = size == 0 ? 0 : size - column % size;
    if (c == '\t') {
      out.append(static_cast<size_t>(blanks), ' ');
      in.heap().check_size(out.size());
    } else {
      out += c;
    }
    column = c == '\n' || c == '\r' ? 0
             : c == '\t'            ? column + blanks
                                    : column + ((c & 0xC0) != 0x80);
  }
  return in.heap().string(std::move(out));
}

Value format(Interpreter& in, const Value& self, const Arguments& arguments) {
  return in.heap().string(format_braces(in, self.get<StringObject>(), arguments));
}

constexpr MethodEntry kMethods[] = {
    {"capitalize", converted<capitalize_case>},
    {"casefold", converted<lower_case>},
    {"center", justify<'^'>},
    {"count", count},
    {"endswith", has_affix<true>},
    {"expandtabs", expand_tabs},
    {"find", find<false, false>},
    {"format", format},
    {"index", find<false, true>},
    {"isalnum", all_are<CharacterClass::kAlnum>},
    {"isalpha", all_are<CharacterClass::kAlpha>},
    {"isascii", is_ascii},
    {"isdecimal", all_are<CharacterClass::kDecimal>},
    {"isdigit", all_are<CharacterClass::kDigit>},
    {"islower", all_are<CharacterClass::kLower>},
    {"isnumeric", all_are<CharacterClass::kNumeric>},
    {"isspace", all_are<CharacterClass::kSpace>},
    {"istitle", is_title},
    {"isupper", all_are<CharacterClass::kUpper>},
    {"join", join},
    {"ljust", justify<'<'>},
    {"lower", converted<lower_case>},
    {"lstrip", strip<true, false>},
    {"partition", partition<false>},
    {"removeprefix", remove_affix<false>},
    {"removesuffix", remove_affix<true>},
    {"replace", replace},
    {"rfind", find<true, false>},
    {"rindex", find<true, true>},
    {"rjust", justify<'>'>},
    {"rpartition", partition<true>},
    {"rsplit", split_string<true>},
    {"rstrip", strip<false, true>},
    {"split", split_string<false>},
    {"splitlines", split_lines},
    {"startswith", has_affix<false>},
    {"strip", strip<true, true>},
    {"swapcase", converted<swap_case>},
    {"title", converted<title_case>},
    {"upper", converted<upper_case>},
    {"zfill", zero_fill},
};

}  // namespace

std::string replace_text(Heap& heap, std::string_view text, std::string_view from,
                         std::string_view to, int64_t limit) {
  std::string out;
  size_t begin = 0;
  while (limit-- != 0) {
    size_t at = from.empty() ? begin : find_text(heap, text, from, begin);
    if (at == npos || at > text.size()) break;
    out += text.substr(begin, at - begin);
    out += to;
    heap.check_size(out.size());
    begin = at + from.size();
    if (!from.empty()) continue;
    heap.charge(1);
    if (begin == text.size()) return out;
    const std::string_view next = first_character(text.substr(begin));
    out += next;
    begin += next.size();
  }
  out += text.substr(std::min(begin, text.size()));
  return out;
}

Values lines_of(Heap& heap, std::string_view text, bool keep_ends) {
  Values lines;
  heap.charge_characters(text.size());
  for (size_t begin = 0; begin < text.size();) {
    size_t end = begin, next = begin;
    while (next < text.size()) {
      end = next;
      const uint32_t c = next_code_point(text, next);
      if (is_line_end(c)) {
        if (c == '\r' && next < text.size() && text[next] == '\n') ++next;
        break;
      }
      end = next;
    }
    lines.push_back(heap.string(std::string(text.substr(begin, (keep_ends ? next : end) - begin))));
    begin = next;
  }
  return lines;
}

Value join_values(Heap& heap, const Values& items, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      heap.check_size(out.size() + separator.size());
      heap.charge_bytes(separator.size());
      out += separator;
    }
    append_str(heap, out, items[i]);
  }
  return heap.string(std::move(out));
}

std::string justify_text(Heap& heap, const StringObject& string, int64_t width,
                         std::string_view fill, char align) {
  if (width <= string.length) return string.text;
  const int64_t missing = width - string.length;
  if (width > (int64_t{1} << 40)) fail("the width exceeds the limit for one value");
  heap.check_size(static_cast<uint64_t>(missing) * fill.size() + string.text.size());
  heap.charge_characters(static_cast<uint64_t>(missing));
  // Like Python's str.center: the extra fill character goes left if the width is odd.
  const int64_t left = align == '<'   ? 0
                       : align == '>' ? missing
                                      : missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += string.text;
  for (int64_t i = left; i < missing; ++i) out += fill;
  return out;
}

const MethodEntry* find_string_method(std::string_view name) {
  const auto* it =
      std::lower_bound(std::begin(kMethods), std::end(kMethods), name,
                       [](const MethodEntry& entry, std::string_view n) { return entry.name < n; });
  return it == std::end(kMethods) || name != it->name ? nullptr : it;
}

}  // namespace slimexx::text::jinja
