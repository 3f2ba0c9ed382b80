// Splits a response into words and the signs between them, for graders that look for the option
// that the response settles on. Drops markup, which only OptionWord::before and after still show.
#pragma once
#include <string>
#include <string_view>
#include <vector>

namespace slimexx::reward {

struct OptionWord {
  // kJoint: a comma, slash or ampersand; kLink: a colon, an equals sign, a dash or an arrow; kStop:
  // the end of a sentence.
  enum Kind { kWord, kJoint, kLink, kStop, kQuestion, kLine };
  Kind kind = kWord;
  std::string raw;                 // for a word: its original text
  std::string text;                // in lower case, without apostrophes
  char before = ' ', after = ' ';  // the bytes next to the word; a blank at the ends of the text
  bool in_formula = false;         // part of an equation, a sum or a power: "A = 5", "C^2"

  bool is(std::string_view word) const { return kind == kWord && text == word; }
  // Whether the word is between brackets, quotation marks, dollars or emphasis.
  bool is_wrapped() const;
};

std::vector<OptionWord> split_option_words(std::string_view text);

// The judgement of an option by the words around its name. A higher stance has priority.
enum class Stance {
  kRejected,  // "not A", "A is wrong", "ruled out A"
  kNamed,
  kAffirmed,  // "it is A", "so A", "I choose A"
  kAnswered   // "the answer is A", "\boxed{A}", "A is correct"
};

// One place in a response that names an option: the words [begin, end).
struct Mention {
  size_t option = 0;
  size_t begin = 0, end = 0;
  Stance stance = Stance::kNamed;
};
Mention make_mention(const std::vector<OptionWord>& words, size_t option, size_t begin, size_t end);

// The option that the response settles on: the last of the mentions with the highest stance. Joined
// mentions ("A or B", "A, B and C") settle on none. `mentions` are in order. `names_one`: if no
// mention is better than kNamed, they must all name the same option.
struct Settled {
  bool found = false;
  size_t option = 0;
  Stance stance = Stance::kNamed;
};
Settled settle(const std::vector<OptionWord>& words, std::vector<Mention> mentions, bool names_one);

}  // namespace slimexx::reward
