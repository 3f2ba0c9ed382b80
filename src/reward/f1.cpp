// `f1`: overlap of the words of response and label, as scored in extractive question answering: the
// harmonic mean of precision and recall over the multisets of words.
#include <fmt/core.h>

#include <map>
#include <utility>

#include "reward/answers/text_scan.h"
#include "reward/graders.h"

namespace slimexx::reward {
namespace {

bool is_ascii_punctuation(uint32_t c) {
  return (c >= 33 && c <= 47) || (c >= 58 && c <= 64) || (c >= 91 && c <= 96) ||
         (c >= 123 && c <= 126);
}

// Lower case, without ASCII punctuation and articles. An article is a whole run of word characters;
// non-word signs next to it stay.
std::vector<std::string> split_words(std::string_view text) {
  const std::string lower = lower_text(text);
  std::vector<std::string> words;
  std::string word, run;
  const auto end_run = [&] {
    if (run == "a" || run == "an" || run == "the") {
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else {
      word += run;
    }
    run.clear();
  };
  for (size_t i = 0; i < lower.size();) {
    const size_t length = char_length(lower, i);
    const uint32_t c = char_at(lower, i);
    if (is_space(c)) {
      end_run();
      if (!word.empty()) words.push_back(std::exchange(word, ""));
    } else if (is_word(c) && c != '_') {
      run.append(lower, i, length);
    } else if (!is_ascii_punctuation(c)) {
      end_run();
      word.append(lower, i, length);
    }
    i += length;
  }
  end_run();
  if (!word.empty()) words.push_back(word);
  return words;
}

bool is_verdict(const std::vector<std::string>& words) {
  return words.size() == 1 && (words[0] == "yes" || words[0] == "no" || words[0] == "noanswer");
}

int64_t count_common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::map<std::string_view, int64_t> left;
  for (const std::string& word : b) ++left[word];
  int64_t common = 0;
  for (const std::string& word : a) {
    const auto it = left.find(word);
    if (it != left.end() && it->second-- > 0) ++common;
  }
  return common;
}

}  // namespace

Grade grade_f1(const RewardInput& input) {
  const auto given = split_words(input.response);
  const auto truth = split_words(input.label);
  Grade grade;
  grade.values = {{"f1", 0.0}, {"precision", 0.0}, {"recall", 0.0}};
  if (truth.empty()) {
    grade.failed = true;
    grade.reason = "the label has no words";
    return grade;
  }
  if ((is_verdict(given) || is_verdict(truth)) && given != truth) {
    grade.reason = "yes, no and noanswer count only as the whole answer";
    return grade;
  }
  const int64_t common = count_common(given, truth);
  grade.reason = fmt::format("{} common words of {} given and {} expected", common, given.size(),
                             truth.size());
  if (common == 0) return grade;
  const double precision = static_cast<double>(common) / static_cast<double>(given.size());
  const double recall = static_cast<double>(common) / static_cast<double>(truth.size());
  grade.reward = 2 * precision * recall / (precision + recall);
  grade.values = {{"f1", grade.reward}, {"precision", precision}, {"recall", recall}};
  return grade;
}

}  // namespace slimexx::reward
