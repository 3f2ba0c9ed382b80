// `gpqa`: multiple choice. Compares the letter that the response settles on with the correct
// letter; if one of the two is unknown, searches the response for the text of the answer.
#include "reward/choice/gpqa.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reward/answers/decimal_text.h"
#include "reward/answers/text_scan.h"
#include "reward/choice/option_words.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kDefaultLetters = "ABCDEFGHIJ";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

std::string upper_text(std::string_view text) {
  std::string out(trim_space(text));
  std::transform(out.begin(), out.end(), out.begin(), upper);
  return out;
}

std::string json_text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<std::string> list_texts(const Json* list) {
  std::vector<std::string> out;
  if (list && (list->is_array() || list->is_object())) {
    for (const Json& item : *list) out.push_back(json_text(item));
  }
  return out;
}

// Joins the words of a text for comparison and search: "\ndeep\nblue\n".
std::string join_words(const std::vector<OptionWord>& words) {
  std::string out = "\n";
  for (const OptionWord& word : words) {
    if (word.kind == OptionWord::kWord && !word.is("\\boxed")) out += word.text + "\n";
  }
  return out;
}

std::string normalize(std::string_view text) { return join_words(split_option_words(text)); }

bool is_empty(std::string_view normalized) { return normalized.size() < 2; }

struct Question {
  std::vector<std::string> choices, letters;
  std::string label;    // trimmed
  std::string correct;  // letter, empty if unknown
  bool label_is_letter = false;
};

// The letter of a label that has more text than the letter: "(D)", "D) three plums", "Answer: D".
std::string letter_of_label(const Question& question) {
  std::vector<OptionWord> words = split_option_words(question.label);
  std::erase_if(words, [](const OptionWord& word) {
    return word.kind != OptionWord::kWord || word.is("\\boxed");
  });
  if (words.empty()) return "";
  const std::string first = upper_text(words[0].raw);
  const auto letter = std::ranges::find(question.letters, first);
  const bool heads = words[0].after == ')' || words[0].after == ':';
  if (letter != question.letters.end() && (words.size() == 1 || heads)) return first;
  if (letter != question.letters.end() && words[0].after == '.') {  // not "C. elegans"
    const auto index = static_cast<size_t>(letter - question.letters.begin());
    const std::string rest = join_words({words.begin() + 1, words.end()});
    if (index < question.choices.size() && normalize(question.choices[index]) == rest) return first;
  }
  const Settled settled = find_letter(question.label, question.letters);
  return settled.found && settled.stance == Stance::kAnswered ? question.letters[settled.option]
                                                              : "";
}

std::string find_correct_letter(const RewardInput& input, const Question& question) {
  const Json* named = find_metadata(input, "correct_letter");
  if (named && named->is_string()) {
    const std::string letter = upper_text(named->get<std::string>());
    if (!letter.empty()) return letter;
  }
  if (question.label_is_letter) return upper_text(question.label);
  const auto index = integer_text(question.label);
  if (index && index->size() <= 2 && (*index)[0] != '-') {
    const size_t i = std::stoul(*index);
    if (i < question.letters.size()) return question.letters[i];
  }
  const std::string target = normalize(question.label);
  for (size_t i = 0; i < question.choices.size() && i < question.letters.size(); ++i) {
    if (!is_empty(target) && normalize(question.choices[i]) == target) return question.letters[i];
  }
  return letter_of_label(question);
}

Question read_question(const RewardInput& input) {
  Question question;
  question.choices = list_texts(find_metadata(input, "choices"));
  const Json* named = find_metadata(input, "valid_letters");
  const auto letters = named && named->is_string() ? std::vector<std::string>{} : list_texts(named);
  for (const std::string& letter : letters) question.letters.push_back(upper_text(letter));
  std::string_view automatic = kDefaultLetters;
  if (named && named->is_string())
    automatic = named->get_ref<const std::string&>();
  else if (!question.choices.empty())
    automatic = kAlphabet.substr(0, question.choices.size());
  if (question.letters.empty()) {
    for (const char letter : automatic) question.letters.emplace_back(1, upper(letter));
  }
  question.label = trim_space(input.label);
  const std::string label = upper_text(question.label);
  question.label_is_letter =
      label.size() == 1 &&
      std::find(question.letters.begin(), question.letters.end(), label) != question.letters.end();
  question.correct = find_correct_letter(input, question);
  return question;
}

// A text that makes a response right or wrong, and the choice that it belongs to.
struct OptionText {
  std::string text;
  size_t option = 0;
};

// The texts of all choices, and other texts of the correct choice. If the choices are unknown, only
// texts of the correct answer.
std::vector<OptionText> option_texts(const RewardInput& input, const Question& question,
                                     size_t correct) {
  std::vector<OptionText> texts;
  for (size_t i = 0; i < question.choices.size(); ++i) texts.push_back({question.choices[i], i});
  for (const char* key : {"correct_answer", "answer_text"}) {
    const Json* value = find_metadata(input, key);
    if (value && (value->is_string() || value->is_number()))
      texts.push_back({json_text(*value), correct});
  }
  if (question.choices.empty() && !question.label_is_letter)
    texts.push_back({question.label, correct});
  std::erase_if(texts, [](const OptionText& one) { return is_empty(normalize(one.text)); });
  return texts;
}

// Mentions of the texts in the response, in order; "blue" within "deep blue" does not count.
std::vector<Mention> find_texts(const std::vector<OptionWord>& words,
                                const std::vector<OptionText>& texts) {
  std::vector<size_t> places;  // of the words
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].kind == OptionWord::kWord && !words[i].is("\\boxed")) places.push_back(i);
  }
  const std::string response = join_words(words);
  std::vector<Mention> found;
  for (const OptionText& one : texts) {
    const std::string target = normalize(one.text);
    const auto length = static_cast<size_t>(std::ranges::count(target, '\n')) - 1;
    size_t word = 0, counted = 0;
    for (size_t at = find_text(response, target, 0); at != std::string::npos;
         at = find_text(response, target, at + target.size() - 1)) {
      word += static_cast<size_t>(std::count(response.begin() + static_cast<int64_t>(counted),
                                             response.begin() + static_cast<int64_t>(at), '\n'));
      counted = at;
      found.push_back(make_mention(words, one.option, places[word], places[word + length - 1] + 1));
    }
  }
  std::ranges::sort(found, [](const Mention& a, const Mention& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
  });
  size_t covered = 0;
  std::vector<Mention> longest;
  for (const Mention& one : found) {
    const bool repeats = !longest.empty() && one.begin == longest.back().begin &&
                         one.end == longest.back().end && one.option != longest.back().option;
    if (one.end > covered || repeats) longest.push_back(one);
    covered = std::max(covered, one.end);
  }
  return longest;
}

// Whether the mention may be one of several options: if the other choices are unknown, "two pears
// or three plums" may name another choice too.
bool is_one_of_several(const std::vector<OptionWord>& words, const Mention& mention) {
  const auto ends = [&](size_t i) {
    return words[i].kind == OptionWord::kStop || words[i].kind == OptionWord::kQuestion ||
           words[i].kind == OptionWord::kLine;
  };
  for (size_t i = mention.begin; i-- > 0 && !ends(i);)
    if (words[i].is("or")) return true;
  for (size_t i = mention.end; i < words.size() && !ends(i); ++i)
    if (words[i].is("or")) return true;
  return false;
}

Grade make_grade(bool right, std::string reason, const std::string& prediction) {
  Grade grade;
  grade.reward = right ? 1 : 0;
  grade.reason = std::move(reason);
  grade.prediction = prediction;
  return grade;
}

// Index of the correct option; beyond all options if it is not known.
size_t index_of_correct(const Question& question) {
  const auto it = std::ranges::find(question.letters, question.correct);
  return it == question.letters.end() ? std::max(question.letters.size(), question.choices.size())
                                      : static_cast<size_t>(it - question.letters.begin());
}

Grade grade_letter(const Question& question, const std::string& letter) {
  return make_grade(letter == question.correct,
                    fmt::format("chose {}, correct is {}", letter, shorten(question.correct)),
                    letter);
}

}  // namespace

Grade grade_gpqa(const RewardInput& input) {
  const Question question = read_question(input);
  const size_t correct = index_of_correct(question);
  const auto texts = option_texts(input, question, correct);
  const bool has_text = std::ranges::find(texts, correct, &OptionText::option) != texts.end();
  if (question.correct.empty() && !has_text) {
    return failed_grade(
        question.choices.empty()
            ? "neither the label nor the metadata names the correct choice"
            : fmt::format("the label '{}' is not the letter, number or text of a choice",
                          shorten(question.label)));
  }
  if (is_unfinished_thought(input.response))
    return make_grade(false, std::string(kNoAnswer) + "the response never leaves <think>", "");
  const Settled letter = find_letter(input.response, question.letters);
  const std::string chosen = letter.found ? question.letters[letter.option] : "";
  const bool can_compare = letter.found && !question.correct.empty();
  if (can_compare && letter.stance == Stance::kAnswered) return grade_letter(question, chosen);

  const auto words = split_option_words(after_reasoning(input.response));
  std::vector<Mention> mentions = find_texts(words, texts);
  if (question.choices.empty())
    std::erase_if(mentions, [&](const Mention& one) { return is_one_of_several(words, one); });
  const Settled settled = settle(words, mentions, true);
  if (can_compare && (!settled.found || settled.stance <= letter.stance))
    return grade_letter(question, chosen);
  if (settled.found) {
    const auto text = std::ranges::find(texts, settled.option, &OptionText::option);
    return make_grade(settled.option == correct,
                      fmt::format("the response settles on '{}'", shorten(text->text)), text->text);
  }
  const char* why = mentions.empty()
                        ? "the response has neither the letter nor the text of an option"
                        : "the response has no letter, but the texts of several options";
  return make_grade(false, std::string(kNoAnswer) + why, chosen);
}

std::string give_gpqa(const RewardInput& input) {
  const Question question = read_question(input);
  const size_t correct = index_of_correct(question);
  const auto texts = option_texts(input, question, correct);
  const auto text = std::ranges::find(texts, correct, &OptionText::option);
  if (!question.correct.empty()) return "Answer: " + question.correct;
  return "Answer: " + (text == texts.end() ? question.label : text->text);
}

}  // namespace slimexx::reward
