// The letter that a response settles on.
#include <algorithm>

#include "reward/answers/text_scan.h"
#include "reward/choice/gpqa.h"
#include "reward/choice/option_words.h"

namespace slimexx::reward {
namespace {

using Words = std::vector<OptionWord>;

std::string upper_ascii(std::string text) {
  for (char& c : text) c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return text;
}

// "A pear", "I think": an article or a pronoun, unless the context says that it is an option.
bool is_plain_word(const Words& words, size_t i) {
  const OptionWord& word = words[i];
  if (word.text != "a" && word.text != "i") return false;
  if (word.after != ' ' || i + 1 == words.size() || words[i + 1].kind != OptionWord::kWord)
    return false;
  static constexpr std::string_view kAfterOption[] = {
      "is",  "are",   "was",  "because", "since", "as", "and",   "or", "but", "with",   "would",
      "has", "seems", "must", "nor",     "for",   "by", "which", "if", "can", "cannot", "correct"};
  const bool follows = std::ranges::find(kAfterOption, words[i + 1].text) != std::end(kAfterOption);
  return word.text == "i" ? !words[i + 1].is("is") && !words[i + 1].is("or") : !follows;
}

// A small letter or a digit is an option only if the context says so.
bool is_option(const Words& words, const Mention& mention, std::string_view option) {
  const size_t i = mention.begin;
  const OptionWord& word = words[i];
  if (word.kind != OptionWord::kWord || word.in_formula) return false;
  if (word.is_wrapped() || words.size() == 1) return true;
  const bool is_capital = word.raw == option && !is_digit(word.raw[0]);
  if (is_plain_word(words, i)) return is_capital && mention.stance == Stance::kAnswered;
  return is_capital || mention.stance == Stance::kAnswered;
}

// Whether the mention begins a line in a list of options: "(A) two pears", "B. three plums".
bool heads_a_line(const Words& words, const Mention& mention) {
  const char after = words[mention.begin].after;
  return (after == ')' || after == '.' || after == ':') && mention.stance == Stance::kNamed;
}

// Drops the mentions in a repeated list of options, which choose none of them.
void drop_lists(const Words& words, size_t num_options, std::vector<Mention>& mentions) {
  const size_t least = std::min<size_t>(3, num_options);
  std::vector<Mention> kept;
  for (size_t begin = 0; begin < mentions.size();) {
    size_t end = begin;
    while (end < mentions.size() && mentions[end].option == end - begin &&
           heads_a_line(words, mentions[end]))
      ++end;
    if (end - begin < least) {
      kept.push_back(mentions[begin]);
      end = begin + 1;
    }
    begin = end;
  }
  mentions = std::move(kept);
}

}  // namespace

Settled find_letter(std::string_view response, const std::vector<std::string>& valid_letters) {
  const Words words = split_option_words(after_reasoning(response));
  std::vector<Mention> mentions;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].kind != OptionWord::kWord) continue;
    const auto letter = std::ranges::find(valid_letters, upper_ascii(words[i].raw));
    if (letter == valid_letters.end()) continue;
    const auto option = static_cast<size_t>(letter - valid_letters.begin());
    const Mention mention = make_mention(words, option, i, i + 1);
    if (is_option(words, mention, *letter)) mentions.push_back(mention);
  }
  drop_lists(words, valid_letters.size(), mentions);
  return settle(words, mentions, false);
}

}  // namespace slimexx::reward
