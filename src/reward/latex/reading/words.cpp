#include "reward/latex/reading/words.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "slimexx/base/strings.h"

namespace slimexx::reward::latex {
namespace {

using Names = std::set<std::string_view>;

const Names kFunctions = {"sin",    "cos",   "tan",  "cot",  "sec",    "csc",    "arcsin", "arccos",
                          "arctan", "asin",  "acos", "atan", "sinh",   "cosh",   "tanh",   "ln",
                          "log",    "exp",   "gcd",  "lcm",  "max",    "min",    "det",    "sqrt",
                          "abs",    "floor", "ceil", "lg",   "arccot", "arcsec", "arccsc", "binom",
                          "coth",   "sech",  "csch", "hcf",  "gcf"};

const Names kUnitAbbreviations = {"cm",   "mm",   "km",  "kg",  "mg",    "ml",   "dm",
                                  "hr",   "hrs",  "min", "sec", "ft",    "in",   "lb",
                                  "lbs",  "oz",   "yd",  "mi",  "mph",   "yds",  "kmh",
                                  "mins", "secs", "pm",  "am",  "units", "unit", "kph"};

const Names kGreek = {"alpha", "beta",    "gamma",   "delta", "epsilon", "zeta",  "eta",   "theta",
                      "iota",  "kappa",   "lambda",  "mu",    "nu",      "xi",    "rho",   "sigma",
                      "tau",   "upsilon", "phi",     "chi",   "psi",     "omega", "Gamma", "Delta",
                      "Theta", "Lambda",  "Xi",      "Pi",    "Sigma",   "Phi",   "Psi",   "Omega",
                      "ell",   "pi",      "partial", "nabla", "hbar"};

const Names kTextWrappers = {"text",         "textbf",
                             "textit",       "textrm",
                             "textnormal",   "textsf",
                             "texttt",       "textsc",
                             "textsl",       "textup",
                             "textmd",       "emph",
                             "mbox",         "hbox",
                             "mathrm",       "mathit",
                             "mathsf",       "mathtt",
                             "mathup",       "mathsfit",
                             "operatorname", "operatornamewithlimits"};

const Names kTextSwitches = {"rm", "bf", "it", "sf", "tt"};

const std::map<std::string_view, Spelling> kSpellings = {{"le", {'s', "<="}},
                                                         {"leq", {'s', "<="}},
                                                         {"leqslant", {'s', "<="}},
                                                         {"leqq", {'s', "<="}},
                                                         {"ge", {'s', ">="}},
                                                         {"geq", {'s', ">="}},
                                                         {"geqslant", {'s', ">="}},
                                                         {"geqq", {'s', ">="}},
                                                         {"ne", {'s', "!="}},
                                                         {"neq", {'s', "!="}},
                                                         {"lt", {'s', "<"}},
                                                         {"gt", {'s', ">"}},
                                                         {"approx", {'s', "~"}},
                                                         {"approxeq", {'s', "~"}},
                                                         {"thickapprox", {'s', "~"}},
                                                         {"doteq", {'s', "~"}},
                                                         {"cong", {'s', "~"}},
                                                         {"simeq", {'s', "~"}},
                                                         {"equiv", {'s', "=="}},
                                                         {"cdot", {'s', "*"}},
                                                         {"times", {'s', "*"}},
                                                         {"ast", {'s', "*"}},
                                                         {"div", {'s', "/"}},
                                                         {"pm", {'s', "pm"}},
                                                         {"mp", {'s', "mp"}},
                                                         {"colon", {'s', ":"}},
                                                         {"lbrace", {'s', "\\{"}},
                                                         {"rbrace", {'s', "\\}"}},
                                                         {"langle", {'s', "<<"}},
                                                         {"rangle", {'s', ">>"}},
                                                         {"lvert", {'s', "|"}},
                                                         {"rvert", {'s', "|"}},
                                                         {"vert", {'s', "|"}},
                                                         {"mid", {'s', "|"}},
                                                         {"lVert", {'s', "\\|"}},
                                                         {"rVert", {'s', "\\|"}},
                                                         {"Vert", {'s', "\\|"}},
                                                         {"lbrack", {'s', "["}},
                                                         {"rbrack", {'s', "]"}},
                                                         {"lparen", {'s', "("}},
                                                         {"rparen", {'s', ")"}},
                                                         {"cup", {'s', "cup"}},
                                                         {"bigcup", {'s', "cup"}},
                                                         {"cap", {'s', "cap"}},
                                                         {"bigcap", {'s', "cap"}},
                                                         {"setminus", {'s', "setminus"}},
                                                         {"backslash", {'s', "setminus"}},
                                                         {"smallsetminus", {'s', "setminus"}},
                                                         {"in", {'s', "in"}},
                                                         {"to", {'s', "->"}},
                                                         {"rightarrow", {'s', "->"}},
                                                         {"implies", {'s', "->"}},
                                                         {"dots", {'s', "..."}},
                                                         {"ldots", {'s', "..."}},
                                                         {"cdots", {'s', "..."}},
                                                         {"dotsc", {'s', "..."}},
                                                         {"dotsm", {'s', "..."}},
                                                         {"land", {'w', "and"}},
                                                         {"wedge", {'w', "and"}},
                                                         {"lor", {'w', "or"}},
                                                         {"vee", {'w', "or"}},
                                                         {"degree", {'s', "degree"}},
                                                         {"prime", {'s', "'"}},
                                                         {"deg", {'s', "degree"}},
                                                         {"textdegree", {'s', "degree"}},
                                                         {"celsius", {'s', "degree"}},
                                                         {"degreeCelsius", {'s', "degree"}},
                                                         {"over", {'s', "over"}},
                                                         {"choose", {'s', "choose"}},
                                                         {"atop", {'s', "atop"}},
                                                         {"brack", {'s', "brack"}},
                                                         {"brace", {'s', "brace"}},
                                                         {"sp", {'s', "^"}},
                                                         {"sb", {'s', "_"}},
                                                         {"textsuperscript", {'s', "^"}},
                                                         {"textsubscript", {'s', "_"}},
                                                         {"slash", {'s', "/"}},
                                                         {"textminus", {'s', "-"}},
                                                         {"texttimes", {'s', "*"}},
                                                         {"textpercent", {'s', "%"}},
                                                         {"textdollar", {'w', "dollar"}},
                                                         {"coloneqq", {'s', "="}},
                                                         {"lgroup", {'s', "("}},
                                                         {"rgroup", {'s', ")"}},
                                                         {"frac", {'c', "frac"}},
                                                         {"nicefrac", {'c', "frac"}},
                                                         {"sfrac", {'c', "frac"}},
                                                         {"flatfrac", {'c', "frac"}},
                                                         {"dfrac", {'c', "frac"}},
                                                         {"tfrac", {'c', "frac"}},
                                                         {"cfrac", {'c', "frac"}},
                                                         {"binom", {'c', "binom"}},
                                                         {"dbinom", {'c', "binom"}},
                                                         {"tbinom", {'c', "binom"}},
                                                         {"infty", {'n', "infty"}},
                                                         {"infin", {'n', "infty"}},
                                                         {"emptyset", {'n', "emptyset"}},
                                                         {"varnothing", {'n', "emptyset"}},
                                                         {"varepsilon", {'n', "epsilon"}},
                                                         {"vartheta", {'n', "theta"}},
                                                         {"varphi", {'n', "phi"}},
                                                         {"overline", {'c', "overline"}},
                                                         {"bar", {'c', "overline"}},
                                                         {"hat", {'c', "hat"}},
                                                         {"widehat", {'c', "hat"}},
                                                         {"tilde", {'c', "tilde"}},
                                                         {"dot", {'c', "overline"}},
                                                         {"sum", {'c', "sum"}},
                                                         {"prod", {'c', "prod"}},
                                                         {"int", {'c', "int"}},
                                                         {"lim", {'c', "lim"}},
                                                         {"lfloor", {'s', "lfloor"}},
                                                         {"rfloor", {'s', "rfloor"}},
                                                         {"lceil", {'s', "lceil"}},
                                                         {"rceil", {'s', "rceil"}},
                                                         {"bmod", {'s', "mod"}},
                                                         {"pmod", {'c', "pmod"}},
                                                         {"mathbb", {'c', "mathbb"}},
                                                         {"R", {'n', "RR"}},
                                                         {"begin", {'c', "begin"}},
                                                         {"end", {'c', "end"}},
                                                         {"circ", {'s', "circ"}},
                                                         {"quad", {'s', "quad"}},
                                                         {"qquad", {'s', "quad"}},
                                                         {"angle", {'n', "angle"}},
                                                         {"triangle", {'n', "triangle"}},
                                                         {"percent", {'s', "%"}},
                                                         {"arccot", {'c', "arccot"}},
                                                         {"substack", {'c', "substack"}},
                                                         {"pounds", {'w', "pound"}},
                                                         {"euro", {'w', "euro"}}};

const std::map<uint32_t, std::string_view> kCodePoints = {{0x2212, "-"},
                                                          {0x2013, "-"},
                                                          {0x2010, "-"},
                                                          {0x2011, "-"},
                                                          {0xFF0D, "-"},
                                                          {0xD7, "*"},
                                                          {0x22C5, "*"},
                                                          {0xB7, "*"},
                                                          {0x2217, "*"},
                                                          {0xF7, "/"},
                                                          {0x2215, "/"},
                                                          {0x2044, "/"},
                                                          {0x3C0, "\\pi "},
                                                          {0x221A, "\\sqrt "},
                                                          {0x221B, "\\sqrt[3]"},
                                                          {0x221E, "\\infty "},
                                                          {0x2264, "<="},
                                                          {0x2A7D, "<="},
                                                          {0x2265, ">="},
                                                          {0x2A7E, ">="},
                                                          {0x2260, "!="},
                                                          {0x2243, "\\approx "},
                                                          {0x2245, "\\approx "},
                                                          {0x2248, "\\approx "},
                                                          {0x222A, "\\cup "},
                                                          {0x2229, "\\cap "},
                                                          {0x2208, "\\in "},
                                                          {0x2216, "\\setminus "},
                                                          {0x2205, "\\emptyset "},
                                                          {0xB1, "\\pm "},
                                                          {0x2213, "\\mp "},
                                                          {0xB0, "\\degree "},
                                                          {0xB5, "\\mu "},
                                                          {0xBA, "\\degree "},
                                                          {0x2DA, "\\degree "},
                                                          {0x2218, "\\circ "},
                                                          {0x2103, "\\degree C"},
                                                          {0x2109, "\\degree F"},
                                                          {0x2126, "\\Omega "},
                                                          {0x2032, "'"},
                                                          {0x2019, "'"},
                                                          {0x2033, "''"},
                                                          {0xBD, "\\frac{1}{2}"},
                                                          {0xBC, "\\frac{1}{4}"},
                                                          {0xBE, "\\frac{3}{4}"},
                                                          {0x2153, "\\frac{1}{3}"},
                                                          {0x2154, "\\frac{2}{3}"},
                                                          {0x211D, "\\mathbb{R}"},
                                                          {0x2124, "\\mathbb{Z}"},
                                                          {0x2115, "\\mathbb{N}"},
                                                          {0x211A, "\\mathbb{Q}"},
                                                          {0x2102, "\\mathbb{C}"},
                                                          {0xFF0C, ","},
                                                          {0xFF1B, ";"},
                                                          {0xFF1A, ":"},
                                                          {0xFF08, "("},
                                                          {0xFF09, ")"},
                                                          {0xFF1D, "="},
                                                          {0xFF0B, "+"},
                                                          {0x3001, ","},
                                                          {0x3002, "."},
                                                          {0xFF05, "%"},
                                                          {0xA0, " "},
                                                          {0x2009, " "},
                                                          {0x202F, " "},
                                                          {0x2003, " "},
                                                          {0x200B, ""},
                                                          {0xFEFF, ""},
                                                          {0x3000, " "},
                                                          {0x20AC, "\\euro "},
                                                          {0xA3, "\\pounds "},
                                                          {0xA5, "\\text{ yen }"},
                                                          {0x20B9, "\\text{ rupee }"},
                                                          {0x2026, "..."},
                                                          {0x27E8, "\\langle "},
                                                          {0x27E9, "\\rangle "},
                                                          {0x2223, "|"},
                                                          {0x2227, "\\land "},
                                                          {0x2228, "\\lor "},
                                                          {0x230A, "\\lfloor "},
                                                          {0x230B, "\\rfloor "},
                                                          {0x2308, "\\lceil "},
                                                          {0x2309, "\\rceil "},
                                                          {0x2220, "\\angle "},
                                                          {0x2192, "\\to "},
                                                          {0x2061, ""},
                                                          {0x201C, "\""},
                                                          {0x201D, "\""}};

constexpr std::string_view kGreekLower[] = {
    "alpha", "beta",   "gamma",   "delta", "epsilon", "zeta", "eta",  "theta", "iota",
    "kappa", "lambda", "mu",      "nu",    "xi",      "o",    "pi",   "rho",   "sigma",
    "sigma", "tau",    "upsilon", "phi",   "chi",     "psi",  "omega"};

}  // namespace

bool is_function(std::string_view name) { return kFunctions.count(name) > 0; }
bool is_connective(std::string_view word) { return word == "and" || word == "or"; }
bool is_unit_abbreviation(std::string_view word) { return kUnitAbbreviations.count(word) > 0; }
bool is_greek(std::string_view name) { return kGreek.count(name) > 0; }
bool is_text_wrapper(std::string_view command) { return kTextWrappers.count(command) > 0; }
bool is_text_switch(std::string_view command) { return kTextSwitches.count(command) > 0; }

bool is_known_command(std::string_view command) {
  return is_function(command) || is_greek(command) || is_text_wrapper(command) ||
         is_text_switch(command) || kSpellings.count(command) > 0;
}

Spelling spelling_of_command(std::string_view command) {
  const auto it = kSpellings.find(command);
  return it == kSpellings.end() ? Spelling{} : it->second;
}

std::optional<std::string_view> latex_of_code_point(uint32_t code_point) {
  if (const auto it = kCodePoints.find(code_point); it != kCodePoints.end()) return it->second;
  if (code_point >= 0x3B1 && code_point <= 0x3C9) {
    static const std::vector<std::string> commands = [] {
      std::vector<std::string> all;
      for (std::string_view name : kGreekLower) {
        all.push_back((name == "o" ? "" : "\\") + std::string(name) + " ");
      }
      return all;
    }();
    return commands[code_point - 0x3B1];
  }
  return std::nullopt;
}

}  // namespace slimexx::reward::latex
