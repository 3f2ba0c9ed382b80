// Judges each mention by the words before and after it, and finds the option that all mentions
// settle on.
#include <algorithm>

#include "reward/choice/option_words.h"

namespace slimexx::reward {
namespace {

constexpr size_t kMaxWords = 8;   // between a mention and the words that judge it
constexpr size_t kMaxSigns = 32;  // the same limit, with signs counted too

using Words = std::vector<OptionWord>;

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

bool is_rejection(std::string_view w) {
  return is_one_of(
      w, {"not",       "isnt",      "arent",       "wasnt",      "never",       "neither",
          "nor",       "none",      "cannot",      "cant",       "dont",        "doesnt",
          "couldnt",   "wouldnt",   "shouldnt",    "out",        "rejected",    "reject",
          "rejecting", "discard",   "discarded",   "discarding", "unlike",      "than",
          "exclude",   "eliminate", "except",      "excluded",   "eliminated",  "wrong",
          "false",     "excluding", "eliminating", "incorrect",  "incorrectly", "invalid"});
}

bool is_hedge(std::string_view w) {
  return is_one_of(w, {"might", "could", "may", "maybe", "perhaps", "possibly", "if", "whether",
                       "considered", "consider", "considering"});
}

// Words that may occur between "answer", "is", "so" and the option.
bool is_filler(std::string_view w) {
  return is_one_of(
      w, {"the",     "a",         "an",        "option",    "choice",  "letter",   "correct",
          "right",   "best",      "final",     "most",      "likely",  "probably", "definitely",
          "clearly", "now",       "then",      "indeed",    "simply",  "just",     "only",
          "would",   "will",      "should",    "must",      "has",     "have",     "to",
          "given",   "by",        "here",      "seems",     "appears", "it",       "that",
          "as",      "one",       "this",      "i",         "we",      "my",       "our",
          "think",   "believe",   "in",        "on",        "with",    "for",      "of",
          "follows", "obviously", "statement", "certainly", "either",  "both"});
}

bool is_copula(std::string_view w) {
  return is_one_of(w, {"is", "be", "was", "its", "thats", "are", "means", "gives"});
}

bool is_commitment(std::string_view w) {
  return is_one_of(w, {"so",       "therefore", "thus",       "hence",  "choose",  "chose",
                       "chosen",   "choosing",  "pick",       "picked", "picking", "select",
                       "selected", "selecting", "go",         "going",  "went",    "settle",
                       "settled",  "conclude",  "concluding", "leaves", "prefer",  "favor",
                       "favour",   "guess",     "leaving",    "im",     "lets"});
}

bool is_correction(std::string_view w) {
  return is_one_of(w, {"wait", "actually", "correction", "instead", "rather"});
}

bool is_answer(std::string_view w) {
  return is_one_of(w, {"answer", "answers", "ans", "\\boxed", "conclusion"});
}

// Predicates of a chosen option: "correct answer", "right option".
bool is_praise(std::string_view w) {
  return is_one_of(w, {"correct", "right", "true", "best", "answer", "answers", "accurate",
                       "appropriate", "better", "valid", "suitable"});
}

Stance stance_before(const Words& words, size_t begin) {
  bool copula = false, linked = false, line = false;
  size_t passed = 0;
  for (size_t i = begin; i-- > 0 && passed < kMaxWords && i + kMaxSigns > begin;) {
    const OptionWord& word = words[i];
    if (word.kind == OptionWord::kStop || word.kind == OptionWord::kQuestion) break;
    linked |= word.kind == OptionWord::kLink;
    line |= word.kind == OptionWord::kLine;
    if (word.kind != OptionWord::kWord) continue;
    ++passed;
    const std::string_view w = word.text;
    if (is_answer(w)) return Stance::kAnswered;
    if ((w == "option" || w == "choice") && (copula || linked) && !line) return Stance::kAnswered;
    if (is_rejection(w)) return line ? Stance::kNamed : Stance::kRejected;
    if (w == "of" && i > 0 && words[i - 1].is("instead")) return Stance::kRejected;
    if (w == "no" && words[i + 1].kind == OptionWord::kWord) return Stance::kRejected;
    if (is_hedge(w)) return Stance::kNamed;
    if (is_correction(w)) return Stance::kAnswered;
    if (is_commitment(w)) return line ? Stance::kNamed : Stance::kAffirmed;
    if (is_copula(w)) {
      copula |= !line;
    } else if (w != "no" && (!is_filler(w) || word.raw == "A")) {
      break;
    }
  }
  return copula ? Stance::kAffirmed : Stance::kNamed;
}

// The judgement that begins at word `i`, about the text before it: "the correct one", "ruled out".
Stance judgement_at(const Words& words, size_t i) {
  for (size_t passed = 0; i < words.size() && passed < kMaxWords; ++i, ++passed) {
    if (words[i].kind != OptionWord::kWord) break;
    const std::string_view w = words[i].text;
    if (is_praise(w)) return Stance::kAnswered;
    if (is_rejection(w) || is_one_of(w, {"ruled", "impossible", "unlikely", "implausible", "too",
                                         "inconsistent", "inaccurate", "no"}))
      return Stance::kRejected;
    if (!is_one_of(
            w, {"the",  "a",     "most",     "more",   "clearly",    "also", "indeed", "therefore",
                "thus", "hence", "probably", "likely", "definitely", "only", "be",     "both",
                "all",  "by",    "far",      "then",   "is",         "are"}))
      break;
  }
  return Stance::kNamed;
}

Stance stance_after(const Words& words, size_t end) {
  if (end >= words.size()) return Stance::kNamed;
  const OptionWord& next = words[end];
  if (next.kind == OptionWord::kLink) {
    if (end + 1 >= words.size() || words[end + 1].kind != OptionWord::kWord) return Stance::kNamed;
    const std::string_view w = words[end + 1].text;
    if (is_one_of(w, {"no", "wrong", "false", "incorrect", "not", "eliminated", "excluded"}))
      return Stance::kRejected;
    return is_one_of(w, {"yes", "correct", "right", "true"}) ? Stance::kAnswered : Stance::kNamed;
  }
  if (next.kind != OptionWord::kWord) return Stance::kNamed;
  if (is_one_of(next.text, {"correct", "right", "true"})) return Stance::kAnswered;
  if (is_one_of(next.text,
                {"incorrect", "wrong", "false", "isnt", "arent", "wasnt", "cannot", "cant",
                 "doesnt", "couldnt", "wouldnt", "fails", "violates", "contradicts"}))
    return Stance::kRejected;
  if (is_one_of(next.text, {"is", "are", "was", "were", "must", "would", "seems", "looks",
                            "appears", "can", "should", "has"}))
    return judgement_at(words, end + 1);
  return Stance::kNamed;
}

// Whether the gap between two mentions only joins the parts of one list.
bool are_joined(const Words& words, const Mention& a, const Mention& b) {
  bool mark = false, word = false;
  for (size_t i = a.end; i < b.begin; ++i) {
    if (words[i].kind == OptionWord::kJoint || words[i].kind == OptionWord::kLine) {
      mark = true;
    } else if (words[i].kind == OptionWord::kWord &&
               is_one_of(words[i].text, {"and", "or", "nor"})) {
      word = true;
    } else if (words[i].kind != OptionWord::kWord ||
               !is_one_of(words[i].text, {"option", "choice", "the", "also", "possibly", "maybe",
                                          "perhaps", "either", "both", "answer"})) {
      return false;
    }
  }
  if (word || a.end == b.begin) return true;
  if (!mark) return false;
  // "B, A is better": a new clause; "A, B and C": a list.
  if (b.end >= words.size() || words[b.end].kind != OptionWord::kWord) return true;
  return is_one_of(words[b.end].text, {"and", "or", "nor", "are"});
}

// Judges a list as a whole: "A, B and C are wrong" rejects all three. `lists`: the number of the
// list that each mention belongs to.
void judge_lists(const std::vector<size_t>& lists, std::vector<Mention>& all) {
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin;
    bool rejected = false;
    Stance best = Stance::kRejected;
    for (; end < all.size() && lists[end] == lists[begin]; ++end) {
      rejected |= all[end].stance == Stance::kRejected;
      best = std::max(best, all[end].stance);
    }
    for (size_t i = begin; i < end; ++i) all[i].stance = rejected ? Stance::kRejected : best;
    begin = end;
  }
}

}  // namespace

Mention make_mention(const Words& words, size_t option, size_t begin, size_t end) {
  const Stance before = stance_before(words, begin);
  const Stance after = stance_after(words, end);
  const bool asks = end < words.size() && words[end].kind == OptionWord::kQuestion;
  Stance stance = asks ? Stance::kNamed : std::max(before, after);
  if (before == Stance::kRejected || after == Stance::kRejected) stance = Stance::kRejected;
  return {option, begin, end, stance};
}

Settled settle(const Words& words, std::vector<Mention> mentions, bool names_one) {
  std::vector<size_t> lists(mentions.size(), 0);
  for (size_t i = 1; i < mentions.size(); ++i)
    lists[i] = lists[i - 1] + (are_joined(words, mentions[i - 1], mentions[i]) ? 0 : 1);
  judge_lists(lists, mentions);
  size_t chosen = mentions.size();
  for (size_t i = 0; i < mentions.size(); ++i) {
    if (mentions[i].stance == Stance::kRejected) continue;
    if (chosen == mentions.size() || mentions[i].stance >= mentions[chosen].stance) chosen = i;
  }
  if (chosen == mentions.size()) return {};
  const Mention& last = mentions[chosen];
  const bool one_only = names_one && last.stance == Stance::kNamed;
  for (size_t i = 0; i < mentions.size(); ++i) {
    const bool counts =
        lists[i] == lists[chosen] || (one_only && mentions[i].stance != Stance::kRejected);
    if (counts && mentions[i].option != last.option) return {};
  }
  return {true, last.option, last.stance};
}

}  // namespace slimexx::reward
