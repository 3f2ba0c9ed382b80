#include "reward/answers/plain_math.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reward/answers/plain_pieces.h"
#include "reward/answers/text_scan.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward {
namespace {

constexpr int kNegationReach = 2;  // words between "not" and its number: "not equal to 5"

bool is_negation(const std::string& word) {
  return word == "not" || word == "never" || word == "cannot" || word == "than" ||
         (word.size() > 3 && word.compare(word.size() - 3, 3, "n't") == 0);
}

class RunBuilder {
 public:
  std::vector<MathRun> take_runs() {
    close();
    return std::move(runs_);
  }

  void add(const Piece& piece) {
    switch (piece.role) {
      case Piece::kSkip:
        space_ = true;
        return;
      case Piece::kWord:
        add_word(to_lower_ascii(piece.latex));
        break;
      case Piece::kBreak:
        close();
        words_since_negation_ = kNegationReach + 1;
        break;
      case Piece::kOperand:
        add_operand(piece);
        break;
      case Piece::kSuffix:
        add_suffix(piece);
        break;
      case Piece::kEquals:
        add_equals(piece);
        break;
      case Piece::kSign:
      case Piece::kInfix:
      case Piece::kPrefix:
        add_operator(piece);
        break;
    }
    space_ = false;
  }

 private:
  void add_word(const std::string& word) {
    close();
    const bool share = word == "of" && last_word_ == "out";  // 6 marbles out of 10
    words_since_negation_ = share || is_negation(word) ? 0 : words_since_negation_ + 1;
    last_word_ = word;
  }

  void add_operand(const Piece& piece) {
    const bool factor = piece.follows || piece.latex[0] == '(';
    const bool joins = !operand_last_ || !space_ || last_.applies || (run_.value_ && factor) ||
                       (last_.number && piece.number);  // "2 1/2", "10 000"
    if (!joins) close();
    if (run_.latex.empty() && pending_.empty()) start(piece.begin);
    if (!pending_.empty()) {
      if (run_.latex.empty()) start(pending_begin_);
      run_.latex += pending_;
      pending_.clear();
    }
    const bool applies = piece.applies || (last_.applies && !operand_last_);
    append(piece);
    last_.applies = applies;
    operand_last_ = true;
  }

  // A function still takes its operand after a suffix: "log₂ 8".
  void add_suffix(const Piece& piece) {
    if (!operand_last_) return;
    const bool applies = last_.applies;
    append(piece);
    last_.applies = applies;
  }

  void add_operator(const Piece& piece) {
    const bool prefix = piece.role == Piece::kPrefix || piece.role == Piece::kSign;
    const char first = piece.latex[0];
    if (!operand_last_) {
      // Keeps a relation without a left side: ">= 5" is not 5.
      const bool relation = first == '<' || first == '>' || first == '!';
      if (!prefix && !relation && run_.latex.empty()) return;
    } else if (piece.role == Piece::kPrefix) {
      close();
    }
    if (pending_.empty()) pending_begin_ = piece.begin;
    if (space_) pending_ += ' ';
    pending_ += piece.latex;
    // After an index or exponent the function still takes its operand: "log_2 8", "sin^2 x".
    if (first != '^' && first != '_') last_.applies = false;
    last_.number = false;
    operand_last_ = false;
  }

  // "x = 5" is one run; in "3 + 4 = 7" the last side counts.
  void add_equals(const Piece& piece) {
    if (!operand_last_) {
      if (run_.latex.empty()) pending_.clear();
      return;
    }
    const bool name = pieces_ == 1 && last_.latex.size() <= 8 && run_.name.empty() &&
                      std::none_of(last_.latex.begin(), last_.latex.end(), is_digit);
    if (name) {
      run_.name = last_.latex;
      run_.formula = run_.value_ = false;
      pending_begin_ = piece.begin;
      pending_ = (space_ ? " " : "") + piece.latex;
      operand_last_ = false;
      return;
    }
    left_ = run_;
    std::string unknown = run_.name;
    run_ = {};
    run_.name = std::move(unknown);
    pieces_ = 0;
    operand_last_ = false;
    last_ = {};
  }

  void start(size_t begin) {
    run_.begin = begin;
    run_.negated = words_since_negation_ <= kNegationReach;
    pieces_ = 0;
  }

  void append(const Piece& piece) {
    if (space_ && !run_.latex.empty()) run_.latex += ' ';
    run_.latex += piece.latex;
    run_.end = piece.end;
    run_.value_ = run_.value_ || piece.value;
    run_.formula = ++pieces_ == 1 && piece.formula;
    last_ = piece;
    operand_last_ = true;
  }

  void close() {
    if (run_.value_) {
      runs_.push_back(run_);
    } else if (left_ && left_->value_) {  // "48 + 24 = ?"
      runs_.push_back(*left_);
    }
    if (run_.value_ || left_) words_since_negation_ = kNegationReach + 1;
    run_ = {};
    left_.reset();
    pending_.clear();
    last_ = {};
    pieces_ = 0;
    operand_last_ = false;
  }

  struct Open : MathRun {
    bool value_ = false;
  };

  std::vector<MathRun> runs_;
  Open run_;
  std::optional<Open> left_;  // the side before the last "="
  std::string pending_;       // operators without their operand so far
  size_t pending_begin_ = 0;
  Piece last_;
  int pieces_ = 0;
  bool operand_last_ = false, space_ = false;
  std::string last_word_;
  int words_since_negation_ = kNegationReach + 1;
};
}  // namespace

std::vector<MathRun> find_math(std::string_view text) {
  const std::vector<Span> formulas = find_formulas(text);
  auto formula = formulas.begin();
  RunBuilder builder;
  Piece before;  // the last piece that is not white space
  bool touches = false;
  for (size_t at = 0; at < text.size();) {
    Piece piece;
    if (formula != formulas.end() && formula->start == at) {
      piece = formula_piece(text, *formula++);
    } else {
      piece = read_piece(text, at, &before, touches);
    }
    at = piece.end;
    // A piece may extend beyond the start of a formula, as in "(so $x$ is 5)".
    while (formula != formulas.end() && formula->start < at) ++formula;
    builder.add(piece);
    touches = piece.role != Piece::kSkip;
    if (touches) before = std::move(piece);
  }
  return builder.take_runs();
}

}  // namespace slimexx::reward
