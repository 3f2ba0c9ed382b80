// clean_source: the part of the lexer that rewrites text before it is split into tokens.
#include <algorithm>
#include <cctype>
#include <vector>

#include "reward/latex/reading/lexer.h"
#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward::latex {
namespace {

int superscript_digit(uint32_t code_point) {
  if (code_point == 0xB9) return 1;
  if (code_point == 0xB2 || code_point == 0xB3) return static_cast<int>(code_point - 0xB0);
  if (code_point == 0x2070 || (code_point >= 0x2074 && code_point <= 0x2079)) {
    return static_cast<int>(code_point - 0x2070);
  }
  return -1;
}

int subscript_digit(uint32_t code_point) {
  return code_point >= 0x2080 && code_point <= 0x2089 ? static_cast<int>(code_point - 0x2080) : -1;
}

std::string to_ascii_latex(std::string_view text) {
  std::string out;
  int open_script = 0;  // '^' or '_' while a run of raised or lowered digits lasts
  auto close_script = [&] {
    if (open_script) out += '}';
    open_script = 0;
  };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const uint32_t c = next_code_point(text, at);
    const int raised = superscript_digit(c), lowered = subscript_digit(c);
    if (raised >= 0 || lowered >= 0 || (c == 0x207B && !open_script)) {
      const int script = lowered >= 0 ? '_' : '^';
      if (open_script != script) {
        close_script();
        out += static_cast<char>(script);
        out += '{';
        open_script = script;
      }
      out += c == 0x207B ? '-' : static_cast<char>('0' + std::max(raised, lowered));
      continue;
    }
    close_script();
    const auto latex = c < 0x80 ? std::nullopt : latex_of_code_point(c);
    if (latex) {
      out += *latex;
    } else {
      out += text.substr(start, at - start);
    }
  }
  close_script();
  return out;
}

// Drops $ and the display delimiters; a lone $ before a number is the currency.
std::string drop_delimiters(const std::string& text) {
  size_t dollars = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\') {
      ++i;
    } else if (text[i] == '$') {
      ++dollars;
    }
  }
  bool currency = dollars % 2 == 1;
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (text[i] == '\\' && (next == '(' || next == ')' || next == '[' || next == ']')) {
      out += ' ';
      ++i;
    } else if (text[i] == '\\' && next != '\0') {
      out += text[i];
      out += next;
      ++i;
    } else if (text[i] == '$') {
      out += currency && (isdigit(static_cast<unsigned char>(next)) || next == '.') ? "\\$ " : " ";
      currency = false;
    } else if (text[i] == '*' && next == '*') {
      out += '^';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

bool is_alignment(std::string_view name) {
  static constexpr std::string_view kNames[] = {"align",    "aligned",    "gather",   "gathered",
                                                "equation", "multline",   "eqnarray", "split",
                                                "math",     "displaymath"};
  if (!name.empty() && name.back() == '*') name.remove_suffix(1);
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Whether a row continues the chain of the previous row ("\\\\ &= 12"), or ends the environment.
bool continues_row(std::string_view rest) {
  const size_t start = rest.find_first_not_of(" \t\r\n&");
  if (start == std::string_view::npos) return true;
  rest.remove_prefix(start);
  for (std::string_view mark : {"=", "\\approx", "\\simeq", "\\end{"}) {
    if (rest.substr(0, mark.size()) == mark) return true;
  }
  return false;
}

// \begin{aligned} x &= 5 + 7 \\ &= 12 \end{aligned} is one chain; other rows are a list.
std::string unwrap_alignments(const std::string& source) {
  const std::string_view text = source;
  std::string out;
  std::vector<bool> open;  // per environment: is it an alignment?
  for (size_t at = 0; at < text.size();) {
    const bool begins = text.substr(at, 7) == "\\begin{", ends = text.substr(at, 5) == "\\end{";
    const size_t name = at + (begins ? 7 : 5);
    const size_t close = begins || ends ? text.substr(0, name + 24).find('}', name) : text.npos;
    if (close != text.npos) {
      const bool alignment = is_alignment(text.substr(name, close - name));
      if (begins) open.push_back(alignment);
      if (ends && !open.empty()) open.pop_back();
      out += alignment ? " " : text.substr(at, close + 1 - at);
      at = close + 1;
    } else if (!open.empty() && open.back() && text[at] == '&') {
      ++at;
    } else if (!open.empty() && open.back() && text.substr(at, 2) == "\\\\") {
      at += 2;
      out += continues_row(text.substr(at)) ? " " : ", ";
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace

std::string clean_source(std::string_view raw) {
  std::string valid = is_valid_utf8(raw) ? std::string(raw) : replace_invalid_utf8(raw);
  std::string_view view = trim(valid);
  while (view.size() >= 4 && view.substr(0, 2) == "**" && view.substr(view.size() - 2) == "**") {
    view = trim(view.substr(2, view.size() - 4));
  }
  std::string text = drop_layout(unwrap_alignments(drop_delimiters(to_ascii_latex(view))));
  view = trim(text);
  while (!view.empty() &&
         (view.back() == '.' || view.back() == ',' || view.back() == ';' || view.back() == ':')) {
    const bool spacing = view.size() >= 2 && view[view.size() - 2] == '\\' && view.back() != '.';
    if (spacing || (view.size() >= 2 && view.back() == '.' && view[view.size() - 2] == '.')) break;
    view = trim(view.substr(0, view.size() - 1));
  }
  return std::string(view);
}

std::optional<std::string> with_upright_unit(std::string_view answer) {
  const std::string text = clean_source(answer);
  const size_t unit = text.find_first_not_of(" 0123456789.,+-/");
  if (unit == std::string::npos || unit < 2 || text[unit - 1] != ' ') return std::nullopt;
  const std::string_view tail = std::string_view(text).substr(unit);
  // Units of one letter, with powers, separated by slashes or spaces: "m", "m^2", "m/s^{2}".
  bool letter_may_follow = true;
  for (size_t at = 0; at < tail.size(); ++at) {
    const bool letter = isalpha(static_cast<unsigned char>(tail[at]));
    if (!letter && std::string_view(" ^{}-/0123456789").find(tail[at]) == std::string::npos) {
      return std::nullopt;
    }
    if (letter && (!letter_may_follow || !is_unit_letter(tail.substr(at, 1)))) return std::nullopt;
    letter_may_follow = tail[at] == '/' || (tail[at] == ' ' && letter_may_follow);
  }
  return text.substr(0, unit) + "\\mathrm{" + std::string(tail) + '}';
}

}  // namespace slimexx::reward::latex
