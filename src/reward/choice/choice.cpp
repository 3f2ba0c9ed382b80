#include "reward/choice/choice.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <vector>

#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kNouns[] = {"option ", "choice ", "answer "};

bool is_option_letter(char c) { return c >= 'A' && c <= 'J'; }

// Reads the text from the left and remembers the wrappers that are open.
class ChoiceReader {
 public:
  explicit ChoiceReader(std::string_view source) : source_(source) {}

  std::optional<Choice> read() {
    while (skip_space() || open_wrapper()) {
    }
    const bool named = std::any_of(std::begin(kNouns), std::end(kNouns),
                                   [&](std::string_view noun) { return take(noun); });
    while (skip_space() || open_wrapper()) {
    }
    const bool bracket = take("(");
    while (skip_space() || open_wrapper()) {
    }
    if (at_ == source_.size() || !is_option_letter(source_[at_])) return std::nullopt;
    Choice choice{source_[at_++], ""};
    bool apart = close_wrappers();
    while (bracket && (skip_space() || open_wrapper())) {
    }
    const bool marked = take(")") || (!bracket && (take(".") || take(":")));
    if (!marked && (!named || bracket)) return std::nullopt;
    while (close_wrappers() || skip_space()) apart = true;
    if (at_ < source_.size()) choice.text = rest();
    if (choice.text.empty() ? !named : !apart || names_option(choice.text)) return std::nullopt;
    return choice;
  }

 private:
  // Takes `lower`, ignoring case.
  bool take(std::string_view lower) {
    if (to_lower_ascii(source_.substr(at_, lower.size())) != lower) return false;
    at_ += lower.size();
    return true;
  }

  bool skip_space() {
    const size_t start = at_;
    for (std::string_view space : {" ", "~", "\\ ", "\\,", "\\;", "\\:", "\\quad", "\\qquad"}) {
      if (source_.substr(at_, space.size()) == space) at_ += space.size();
    }
    return at_ > start;
  }

  // "\textbf{", "{"
  bool open_wrapper() {
    size_t end = at_;
    if (source_.substr(at_, 1) == "\\") {
      ++end;
      while (end < source_.size() && isalpha(static_cast<unsigned char>(source_[end]))) ++end;
      const std::string_view name = source_.substr(at_ + 1, end - at_ - 1);
      if (!latex::is_text_wrapper(name) && !latex::is_text_switch(name)) return false;
      while (end < source_.size() && source_[end] == ' ') ++end;
    }
    if (source_.substr(end, 1) != "{") return false;
    open_.push_back(source_.substr(at_, end + 1 - at_));
    at_ = end + 1;
    return true;
  }
  bool close_wrappers() {
    const size_t start = at_;
    while (!open_.empty() && source_.substr(at_, 1) == "}") {
      open_.pop_back();
      ++at_;
    }
    return at_ > start;
  }

  // The text after the letter, in the wrappers that are still open there.
  std::string rest() const {
    std::string text;
    for (std::string_view wrapper : open_) text += wrapper;
    return text += trim(source_.substr(at_));
  }

  // A second "(B)" or "B." means that the text has several options.
  static bool names_option(std::string_view text) {
    for (size_t at = 0; at + 1 < text.size(); ++at) {
      if (!is_option_letter(text[at])) continue;
      const bool bracket = at > 0 && text[at - 1] == '(' && text[at + 1] == ')';
      const bool mark = (at == 0 || text[at - 1] == ' ' || text[at - 1] == '{') &&
                        (text[at + 1] == '.' || text[at + 1] == ':' || text[at + 1] == ')');
      if (bracket || mark) return true;
    }
    const std::string lower = to_lower_ascii(text);
    return std::any_of(std::begin(kNouns), std::end(kNouns), [&](std::string_view noun) {
      return lower.find(noun) != std::string::npos;
    });
  }

  std::string_view source_;
  size_t at_ = 0;
  std::vector<std::string_view> open_;
};

}  // namespace

std::optional<Choice> read_choice(std::string_view source) { return ChoiceReader(source).read(); }

}  // namespace slimexx::reward
