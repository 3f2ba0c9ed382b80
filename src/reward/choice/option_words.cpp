#include "reward/choice/option_words.h"

#include <algorithm>

#include "reward/answers/text_scan.h"

namespace slimexx::reward {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

// U+2019 is the apostrophe of "isn’t".
size_t apostrophe_length(std::string_view text, size_t at) {
  if (text[at] == '\'') return 1;
  return text.substr(at, 3) == "\xe2\x80\x99" ? 3 : 0;
}

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<OptionWord> split() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\\') {
        take_command();
      } else if (starts_word()) {
        take_word();
      } else if (text_[at_] == '<' && take_tag()) {
        continue;
      } else {
        take_sign();
      }
    }
    return std::move(words_);
  }

 private:
  char byte(size_t at) const { return at < text_.size() ? text_[at] : ' '; }

  bool is_word_at(size_t at) const {
    return at < text_.size() && text_[at] != '_' && is_word(char_at(text_, at));
  }

  // Whether a word starts here; also at -5, but not at the hyphen of x-5.
  bool starts_word() const {
    if (is_word_at(at_)) return true;
    return text_[at_] == '-' && is_digit(byte(at_ + 1)) &&
           (at_ == 0 || !is_word(char_at(text_, previous_char(text_, at_))));
  }

  // Length of signs at `at` that continue the word before them: "isn't", "3.14", "1,000", "x_1".
  size_t inner_length(size_t at) const {
    const size_t apostrophe = at < text_.size() ? apostrophe_length(text_, at) : 0;
    if (apostrophe > 0) return is_letter(byte(at + apostrophe)) ? apostrophe : 0;
    const char c = byte(at);
    const bool digits = is_digit(byte(at - 1)) && is_digit(byte(at + 1));
    if ((c == '.' || c == ',') && digits) return 1;
    return c == '_' && is_word_at(at + 1) ? 1 : 0;
  }

  void take_word() {
    OptionWord word;
    const size_t begin = at_;
    word.before = begin == 0 ? ' ' : text_[begin - 1];
    if (text_[at_] == '-') word.raw += text_[at_++];
    while (at_ < text_.size()) {
      if (is_word_at(at_)) {
        const size_t length = char_length(text_, at_);
        word.raw.append(text_.substr(at_, length));
        at_ += length;
      } else if (const size_t length = inner_length(at_)) {
        if (apostrophe_length(text_, at_) == 0) word.raw.append(text_.substr(at_, length));
        at_ += length;
      } else {
        break;
      }
    }
    word.text = lower_text(word.raw);
    word.after = byte(at_);
    word.in_formula = is_in_formula(begin);
    words_.push_back(std::move(word));
  }

  bool is_in_formula(size_t begin) const {
    const char before = begin == 0 ? ' ' : text_[begin - 1];
    if (before == '+' || before == '^') return true;
    size_t next = at_;
    while (byte(next) == ' ' && next < text_.size()) ++next;
    const char c = byte(next);
    return c == '=' || c == '+' || c == '^';
  }

  // Drops commands for layout and fonts; \boxed and arrows carry meaning.
  void take_command() {
    size_t end = at_ + 1;
    while (is_letter(byte(end))) ++end;
    const std::string_view name = text_.substr(at_ + 1, end - at_ - 1);
    if (name.empty()) {
      at_ = std::min(end + 1, text_.size());  // \( \, \$
      return;
    }
    at_ = end;
    if (name == "boxed" || name == "fbox") {
      put(OptionWord::kWord, "\\boxed");
    } else if (is_one_of(name, {"to", "rightarrow", "Rightarrow", "implies", "longrightarrow"})) {
      put(OptionWord::kLink);
    } else if (!is_one_of(name,
                          {"text",   "textbf", "textit",     "textrm",       "mathbf", "mathrm",
                           "mathsf", "mathit", "bf",         "rm",           "it",     "left",
                           "right",  "quad",   "qquad",      "displaystyle", "emph",   "underline",
                           "mbox",   "textsf", "textnormal", "operatorname", "bm",     "boldsymbol",
                           "big",    "Big",    "mathtt",     "texttt",       "large",  "Large"})) {
      put(OptionWord::kWord, "\\" + std::string(name));
    }
  }

  // Drops tags such as <b> and </b>; only <answer> carries meaning.
  bool take_tag() {
    constexpr size_t kMaxName = 12;
    size_t begin = at_ + 1;
    if (byte(begin) == '/') ++begin;
    size_t end = begin;
    while (is_letter(byte(end)) && end - begin <= kMaxName) ++end;
    if (end == begin || byte(end) != '>') return false;
    if (end == begin + 1 && text_[begin] < 'a') return false;  // <D>
    if (begin == at_ + 1 && text_.substr(begin, end - begin) == "answer") {
      put(OptionWord::kWord, "answer");
      put(OptionWord::kLink);
    }
    at_ = end + 1;
    return true;
  }

  void take_sign() {
    const uint32_t c = char_at(text_, at_);
    const char next = byte(at_ + 1);
    at_ += char_length(text_, at_);
    if (c == '\n') {
      if (words_.empty() || words_.back().kind != OptionWord::kLine) put(OptionWord::kLine);
    } else if (c == ',' || c == '/' || c == '&' || c == 0x3001 || c == 0xFF0C) {
      put(OptionWord::kJoint);
    } else if (c == '?' || c == 0xFF1F) {
      put(OptionWord::kQuestion);
    } else if (c == '.' || c == '!' || c == ';' || c == 0x3002) {
      put(OptionWord::kStop);
    } else if (c == ':' || c == '=' || c == '>' || c == 0xFF1A || c == 0x2192 || c == 0x21D2 ||
               c == 0x2013 || c == 0x2014 || (c == '-' && next != '-')) {
      put(OptionWord::kLink);
    }
  }

  void put(OptionWord::Kind kind, std::string text = "") {
    OptionWord word;
    word.kind = kind;
    word.raw = text;
    word.text = std::move(text);
    words_.push_back(std::move(word));
  }

  std::string_view text_;
  size_t at_ = 0;
  std::vector<OptionWord> words_;
};

}  // namespace

bool OptionWord::is_wrapped() const {
  const auto is_sign = [](char c, std::string_view ascii) {
    return static_cast<unsigned char>(c) >= 0x80 || ascii.find(c) != ascii.npos;
  };
  return is_sign(before, "([{<*_\"'`$>") && is_sign(after, ")]}>*_\"'`$<");
}

std::vector<OptionWord> split_option_words(std::string_view text) { return Splitter(text).split(); }

}  // namespace slimexx::reward
