// `gpqa`: multiple choice. The letter that the response settles on against the correct one; where
// one of the two is unknown, the text of the answer within the response.
#include "reward/gpqa.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "reward/decimal_text.h"
#include "reward/graders.h"
#include "reward/text_scan.h"

namespace slimexx::reward {
namespace {

constexpr std::string_view kDefaultLetters = "ABCDEFGHIJ";
constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char upper(char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; }

std::string upper_text(std::string_view text) {
  std::string out(trim_space(text));
  std::transform(out.begin(), out.end(), out.begin(), upper);
  return out;
}

// The length of the first of `words` at `position`; 0 if none is there.
size_t match_any(std::string_view text, size_t position,
                 std::initializer_list<std::string_view> words) {
  for (const std::string_view word : words) {
    if (matches_word(text, position, word)) return word.size();
  }
  return 0;
}

// Behind "answer" or its like: an optional "is" or colon, then the letter. Where no letter follows
// "is", the "i" is taken for one. 0 if there is no letter.
char letter_behind(std::string_view text, size_t position) {
  const size_t link = skip_space(text, position);
  const size_t linked = match_any(text, link, {"is", ":"});
  const size_t letter = skip_space(text, link + linked);
  if (letter < text.size() && is_letter(text[letter])) return upper(text[letter]);
  return linked > 1 ? 'I' : 0;
}

// "answer is B", "option: b", "choice C": the first of them.
char letter_of_answer(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t keyword = match_any(text, i, {"answer", "option", "choice"});
    if (keyword == 0) continue;
    if (const char letter = letter_behind(text, i + keyword)) return letter;
  }
  return 0;
}

// "B is correct", "B is the correct".
char letter_called_correct(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!is_letter(text[i])) continue;
    const size_t is = skip_space(text, i + 1);
    if (!matches_word(text, is, "is")) continue;
    const size_t next = skip_space(text, is + 2);
    const size_t the = match_any(text, next, {"the"});
    if (matches_word(text, skip_space(text, next + the), "correct")) return upper(text[i]);
  }
  return 0;
}

// "final answer: B".
char letter_of_final_answer(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!matches_word(text, i, "final")) continue;
    const size_t next = skip_space(text, i + 5);
    const size_t keyword = match_any(text, next, {"answer", "option"});
    if (keyword == 0) continue;
    if (const char letter = letter_behind(text, next + keyword)) return letter;
  }
  return 0;
}

// The last capital that stands alone and is one of `valid`.
char last_lone_capital(std::string_view text, const std::vector<std::string>& valid) {
  for (size_t i = text.size(); i-- > 0;) {
    if (text[i] < 'A' || text[i] > 'Z') continue;
    if (i > 0 && is_word(char_at(text, previous_char(text, i)))) continue;
    if (i + 1 < text.size() && is_word(char_at(text, i + 1))) continue;
    if (std::find(valid.begin(), valid.end(), std::string(1, text[i])) != valid.end())
      return text[i];
  }
  return 0;
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

// Lower-case ASCII letters and digits, anything else one blank.
std::string normalize(std::string_view text) {
  std::string out;
  for (const char raw : text) {
    const char c = raw >= 'A' && raw <= 'Z' ? static_cast<char>(raw + 32) : raw;
    if (is_digit(c) || (c >= 'a' && c <= 'z')) {
      out += c;
    } else if (!out.empty() && out.back() != ' ') {
      out += ' ';
    }
  }
  if (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

struct Question {
  std::vector<std::string> choices, letters;
  std::string label;    // trimmed
  std::string correct;  // letter, empty if unknown
  bool label_is_letter = false;
};

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
    if (!question.label.empty() && normalize(question.choices[i]) == target) {
      return question.letters[i];
    }
  }
  return "";
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

// The texts any of which within the response makes it right.
std::vector<std::string> answer_texts(const RewardInput& input, const Question& question) {
  std::vector<std::string> texts;
  const auto it = std::find(question.letters.begin(), question.letters.end(), question.correct);
  const auto index = static_cast<size_t>(it - question.letters.begin());
  if (!question.correct.empty() && index < question.choices.size()) {
    texts.push_back(question.choices[index]);
  }
  for (const char* key : {"correct_answer", "answer_text"}) {
    const Json* value = find_metadata(input, key);
    if (value && (value->is_string() || value->is_number())) texts.push_back(json_text(*value));
  }
  if (!question.label_is_letter) texts.push_back(question.label);
  return texts;
}

Grade make_grade(bool right, std::string reason, const std::string& letter) {
  Grade grade;
  grade.reward = right ? 1 : 0;
  grade.reason = std::move(reason);
  grade.prediction = letter;
  return grade;
}

}  // namespace

std::string find_letter(std::string_view response, const std::vector<std::string>& valid_letters) {
  const std::string_view text = after_reasoning(response);
  for (const auto find : {letter_of_answer, letter_called_correct, letter_of_final_answer}) {
    const std::string letter(1, find(text));
    if (std::find(valid_letters.begin(), valid_letters.end(), letter) != valid_letters.end()) {
      return letter;
    }
  }
  const char lone = last_lone_capital(text, valid_letters);
  return lone ? std::string(1, lone) : "";
}

Grade grade_gpqa(const RewardInput& input) {
  const Question question = read_question(input);
  const std::string letter = find_letter(input.response, question.letters);
  if (!letter.empty() && !question.correct.empty()) {
    return make_grade(letter == question.correct,
                      fmt::format("chose {}, correct is {}", letter, shorten(question.correct)),
                      letter);
  }
  const std::string response = " " + normalize(after_reasoning(input.response)) + " ";
  for (const std::string& text : answer_texts(input, question)) {
    const std::string target = normalize(text);
    if (!target.empty() && contains(response, " " + target + " ")) {
      return make_grade(true, fmt::format("the response contains '{}'", shorten(text)), letter);
    }
  }
  if (!letter.empty() && !question.label.empty()) {
    return make_grade(letter == upper_text(question.label),
                      fmt::format("chose {}, label {}", letter, shorten(question.label)), letter);
  }
  const auto texts = answer_texts(input, question);
  if (question.correct.empty() && std::all_of(texts.begin(), texts.end(), [](const auto& text) {
        return normalize(text).empty();
      }))
    return failed_grade("neither the label nor the metadata names the correct choice", letter);
  return make_grade(false, "no letter and no answer text in the response", letter);
}

}  // namespace slimexx::reward
