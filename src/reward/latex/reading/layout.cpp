// drop_layout: removes commands that change only the look of an answer.
#include <map>
#include <string>
#include <vector>

#include "reward/latex/reading/lexer.h"
#include "reward/latex/reading/words.h"

namespace slimexx::reward::latex {
namespace {

// Arguments before the visible one: a colour, a width, a formula number.
struct HiddenArguments {
  int count = 0;
  bool options = false;  // a star and [...] may come before them
};

struct LayoutCommands {
  HiddenArguments hidden;
  std::string_view names;  // one space between two
};

constexpr HiddenArguments kNone{0, false}, kOptions{0, true}, kOne{1, true}, kTwo{2, true};

// Commands of TeX, LaTeX, amsmath, mathtools, xcolor, graphicx, and additions of KaTeX and MathJax.
constexpr LayoutCommands kLayoutCommands[] = {
    // delimiters' sizes
    {kNone, "left right middle mleft mright big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr"},
    {kNone, "biggr Biggr bigm Bigm biggm Biggm"},
    // sizes and styles
    {kNone, "tiny Tiny scriptsize footnotesize small SMALL normalsize large Large LARGE huge Huge"},
    {kNone, "displaystyle textstyle scriptstyle scriptscriptstyle displaymath limits nolimits"},
    {kNone,
     "normalcolor displaylimits normalfont selectfont boldmath unboldmath bfseries mdseries "
     "itshape"},
    {kNone, "slshape scshape upshape rmfamily sffamily ttfamily em cal centering raggedright"},
    {kNone, "mathbf boldsymbol bm pmb bold mathcal mathfrak frak mathscr mathnormal mathbfit"},
    {kNone, "mathbfup mathbfsf symbf symit symrm symup symsf mathbin mathrel mathop mathord"},
    {kNone, "mathopen mathclose mathpunct mathinner ensuremath cramped"},
    // boxes, lines and arrows around or above their content
    {kNone, "boxed fbox Aboxed underline underbar uline vec overrightarrow mathllap mathrlap"},
    {kNone, "mathclap llap rlap clap vcenter ovalbox Ovalbox shadowbox doublebox uuline uwave"},
    {kNone, "hl ul"},
    {kOptions, "smash makebox framebox bbox tcbhighmath num numprint"},
    // spaces and line breaks
    {kNone, "space thinspace medspace thickspace enspace enskip negthinspace negmedspace"},
    {kNone, "negthickspace nobreakspace hfil hfill hss vfill hrulefill dotfill hline newline"},
    {kOptions, "linebreak nolinebreak"},
    {kNone, "break nobreak allowbreak par indent noindent smallskip medskip bigskip null strut"},
    {kNone, "mathstrut relax nonumber notag protect leavevmode ignorespaces unskip"},
    {kOne, "hspace vspace mspace hskip vskip mskip kern mkern phantom hphantom vphantom"},
    // formula numbers, links, notes, end-of-proof signs
    {kOne, "tag label ref eqref index cite footnote footnotemark href class cssId style"},
    {kOne, "htmlClass htmlId htmlStyle htmlData"},
    {kNone, "therefore checkmark qed qedsymbol qedhere blacksquare"},
    // colours; Khan Academy names its commands after colours
    {kOne, "color textcolor mathcolor colorbox pagecolor mathversion fontfamily fontseries"},
    {kTwo, "fcolorbox"},
    {kNone, "red blue green orange purple pink gray teal gold maroon"},
    // commands that move or scale their content, and notes above and below it
    {kOne, "raisebox raise lower scalebox parbox overset underset stackrel"},
    {kTwo, "resizebox rule fontsize"}};

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

template <typename Visit>
void for_each_name(std::string_view names, Visit visit) {
  while (!names.empty()) {
    const size_t end = names.find(' ');
    visit(names.substr(0, end));
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 1);
  }
}

const HiddenArguments* find_layout_command(std::string_view name) {
  static const auto kAll = [] {
    std::map<std::string_view, HiddenArguments> all;
    for (const LayoutCommands& row : kLayoutCommands) {
      for_each_name(row.names, [&](std::string_view one) { all[one] = row.hidden; });
    }
    return all;
  }();
  const auto it = kAll.find(name);
  return it == kAll.end() ? nullptr : &it->second;
}

// Length of the dimension ("-2pt", "1.5 em") that begins the text, or 0.
size_t dimension_length(std::string_view text) {
  const size_t digits = text.find_first_not_of("+-.0123456789");
  if (digits == 0 || digits == std::string_view::npos) return 0;
  const size_t unit = text[digits] == ' ' ? digits + 1 : digits;
  bool known = false;
  for_each_name("pt em ex cm mm in mu pc bp sp",
                [&](std::string_view one) { known |= text.substr(unit, 2) == one; });
  return known ? unit + 2 : 0;
}

bool has_line(std::string_view thickness) {
  return thickness.find_first_of("123456789") != std::string_view::npos;
}

class LayoutDropper {
 public:
  explicit LayoutDropper(std::string_view text) : text_(text) {}

  std::string run() {
    while (at_ < text_.size()) {
      while (!at_ends_.empty() && at_ends_.back().at <= at_) end_group();
      if (at_ < text_.size()) step();
    }
    return std::move(out_);
  }

 private:
  char peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void step() {
    if (peek() != '\\') {
      out_ += text_[at_++];
    } else if (is_letter(peek(1))) {
      command();
    } else if (peek(1) == '\\' && is_letter(peek(2)) && environments_ == 0) {
      ++at_;  // doubly escaped
    } else {
      const bool row = peek(1) == '\\';
      out_ += text_.substr(at_, 2);
      at_ = std::min(at_ + 2, text_.size());
      if (row && peek() == '[' && dimension_length(text_.substr(at_ + 1)) > 0) skip_options();
    }
  }

  std::string_view read_name() {
    const size_t begin = ++at_;
    while (is_letter(peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  void command() {
    const size_t begin = at_;
    const std::string_view name = read_name();
    if (const HiddenArguments* hidden = find_layout_command(name)) {
      if ((name == "left" || name == "right") && peek() == '.') ++at_;
      if (hidden->options) skip_options();
      for (int k = 0; k < hidden->count; ++k) skip_argument();
      out_ += ' ';
    } else if (name == "underbrace" || name == "overbrace") {
      if (peek() == '{') at_ends_.push_back({group_end(at_), ""});
    } else if (name == "eqno" || name == "leqno") {
      at_ = text_.size();
    } else if (name == "not") {
      skip_blanks();
      out_ += peek() == '=' ? "\\neq " : "\\not ";
      at_ += peek() == '=';
    } else if (name == "above" || name.ends_with("withdelims")) {
      infix(name);
    } else if (name == "genfrac") {
      general_fraction();
    } else if (name == "cfrac") {
      skip_options();
      out_ += "\\frac";
    } else if (name == "SI" || name == "qty" || name == "ang") {  // siunitx
      skip_options();
      const char* const after = name == "ang" ? "\\degree " : "\\mathrm";
      if (peek() == '{') at_ends_.push_back({group_end(at_), after});
    } else if (name == "si" || name == "unit") {
      skip_options();
      out_ += "\\mathrm";
    } else {
      environments_ += name == "begin" ? 1 : name == "end" ? -1 : 0;
      out_ += text_.substr(begin, at_ - begin);
    }
  }

  // Position after the group that begins at `begin`; the end of the text if it is not closed.
  size_t group_end(size_t begin) const {
    int braces = 0;
    for (size_t at = begin; at < text_.size(); ++at) {
      if (text_[at] == '\\') {
        ++at;
      } else if (text_[at] == '{') {
        ++braces;
      } else if (text_[at] == '}' && --braces == 0) {
        return at + 1;
      }
    }
    return text_.size();
  }

  void skip_blanks() {
    while (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r') ++at_;
  }

  void skip_options() {
    if (peek() == '*') ++at_;
    while (peek() == '[') {
      const size_t close = text_.find(']', at_);
      at_ = close == std::string_view::npos ? text_.size() : close + 1;
    }
  }

  // Skips a group, a dimension, a command or one character.
  std::string_view skip_argument() {
    skip_blanks();
    const size_t begin = at_;
    if (peek() == '{') {
      at_ = group_end(at_);
    } else if (const size_t length = dimension_length(text_.substr(at_)); length > 0) {
      at_ += length;
    } else if (peek() == '\\' && is_letter(peek(1))) {
      read_name();
    } else {
      at_ = std::min(text_.size(), at_ + (peek() == '\\' ? 2 : 1));
    }
    return text_.substr(begin, at_ - begin);
  }

  // Handles text after a group: \underbrace{12}_{a note}, \SI{12}{\meter}.
  void end_group() {
    const std::string_view inserted = at_ends_.back().inserted;
    at_ends_.pop_back();
    out_ += inserted;
    if (!inserted.empty()) return;
    skip_blanks();
    if (peek() != '_' && peek() != '^') return;
    ++at_;
    skip_argument();
  }

  // Treats \above1pt as \over, and \atopwithdelims() as \choose.
  void infix(std::string_view name) {
    std::string_view open;
    if (name != "above") {
      open = skip_argument();
      skip_argument();
    }
    const bool line = name.starts_with("above") ? has_line(skip_argument()) : name[0] == 'o';
    out_ += line            ? "\\over "
            : open == "("   ? "\\choose "
            : open == "["   ? "\\brack "
            : open == "\\{" ? "\\brace "
                            : "\\atop ";
  }

  // \genfrac{(}{)}{0pt}{}{n}{k} is \binom{n}{k}; with a line it is a fraction.
  void general_fraction() {
    const std::string_view open = skip_argument();
    skip_argument();
    const std::string_view thickness = skip_argument();
    skip_argument();
    out_ += thickness == "{}" || has_line(thickness) ? "\\frac"
            : open == "{(}"                          ? "\\binom"
                                                     : "\\genfrac";
  }

  struct GroupEnd {
    size_t at;
    std::string_view inserted;  // empty: drops a note that follows
  };

  std::string_view text_;
  std::string out_;
  size_t at_ = 0;
  std::vector<GroupEnd> at_ends_;  // innermost last
  int environments_ = 0;
};

}  // namespace

bool is_layout(std::string_view command) {
  const HiddenArguments* hidden = find_layout_command(command);
  return hidden && hidden->count == 0;
}

std::string drop_layout(std::string_view text) { return LayoutDropper(text).run(); }

}  // namespace slimexx::reward::latex
