// Units: one canonical spelling per unit, and words that multiply a number.
#include <algorithm>
#include <charconv>
#include <map>

#include "reward/latex/reading/words.h"
#include "slimexx/base/strings.h"

namespace slimexx::reward::latex {
namespace {

struct UnitNames {
  std::string_view root;
  std::string_view others;  // spellings, one space between two
};

// Names of units, without the plural s, prefixes (km, kilometer) and capitals.
constexpr UnitNames kUnitNames[] = {{"meter", "m metre"}, {"gram", "g gm"},
                                    {"second", "s sec"},  {"liter", "l L litre"},
                                    {"newton", "N"},      {"joule", "J"},
                                    {"watt", "W"},        {"volt", "V"},
                                    {"ampere", "A amp"},  {"kelvin", "K"},
                                    {"coulomb", "C"},     {"farad", "F"},
                                    {"tesla", "T"},       {"hertz", "Hz"},
                                    {"pascal", "Pa"},     {"electronvolt", "eV"},
                                    {"mole", "mol"},      {"ohm", "Omega"},
                                    {"ton", "t tonne"},   {"byte", ""},
                                    {"bit", ""},          {"inch", "in inches"},
                                    {"foot", "ft feet"},  {"yard", "yd"},
                                    {"mile", "mi"},       {"pound", "lb"},
                                    {"ounce", "oz"},      {"gallon", "gal"},
                                    {"acre", ""},         {"hectare", "ha"},
                                    {"hour", "h hr"},     {"minute", "min"},
                                    {"day", ""},          {"week", ""},
                                    {"month", ""},        {"year", "yr"},
                                    {"dollar", "USD"},    {"cent", ""},
                                    {"euro", "EUR"},      {"yen", ""},
                                    {"rupee", ""},        {"degree", ""},
                                    {"celsius", ""},      {"radian", "rad"},
                                    {"unit", "u"},        {"%", ""},
                                    {"mile/hour", "mph"}, {"kilometer/hour", "kmh kph kmph"}};

struct Prefix {
  std::string_view name, letter;
};
constexpr Prefix kPrefixes[] = {{"kilo", "k"}, {"centi", "c"}, {"milli", "m"}, {"mega", "M"},
                                {"giga", "G"}, {"deci", "d"},  {"nano", "n"},  {"micro", "mu"}};

struct Magnitude {
  std::string_view word;
  long long above, below;
};
constexpr Magnitude kMagnitudes[] = {{"dozen", 12, 1},           {"score", 20, 1},
                                     {"hundred", 100, 1},        {"gross", 144, 1},
                                     {"thousand", 1000, 1},      {"lakh", 100000, 1},
                                     {"million", 1000000, 1},    {"crore", 10000000, 1},
                                     {"billion", 1000000000, 1}, {"tenth", 1, 10},
                                     {"hundredth", 1, 100},      {"thousandth", 1, 1000},
                                     {"millionth", 1, 1000000},  {"trillion", 1000000000000, 1}};

const std::map<std::string_view, std::string_view>& spellings() {
  static const auto kAll = [] {
    std::map<std::string_view, std::string_view> all;
    for (const UnitNames& unit : kUnitNames) {
      all[unit.root] = unit.root;
      for (std::string_view rest = unit.others; !rest.empty();) {
        const size_t end = std::min(rest.find(' '), rest.size());
        all[rest.substr(0, end)] = unit.root;
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
    }
    return all;
  }();
  return kAll;
}

// "kilometer" for km, kms, kilometre; empty for an unknown word.
std::string exact_root(std::string_view word) {
  const bool plural = word.size() > 2 && word.back() == 's';
  for (const std::string_view form : {word, word.substr(0, word.size() - plural)}) {
    if (const auto it = spellings().find(form); it != spellings().end()) {
      return std::string(it->second);
    }
    for (const auto& [name, letter] : kPrefixes) {
      for (std::string_view start : {name, letter}) {
        if (!form.starts_with(start)) continue;
        const auto it = spellings().find(form.substr(start.size()));
        // A prefix letter goes only before unit letters, a prefix name only before a unit name.
        if (it == spellings().end() || (it->first == it->second) != (start == name)) continue;
        return std::string(name) + std::string(it->second);
      }
    }
  }
  return {};
}

std::string root_of(std::string_view word) {
  if (std::string root = exact_root(word); !root.empty()) return root;
  const std::string lower = to_lower_ascii(word);
  const std::string root = exact_root(lower);
  return root.empty() ? lower : root;
}

// The factors of a unit with their powers; everything after a slash or "per" divides.
class UnitReader {
 public:
  std::map<std::string, int> read(std::string_view unit) {
    for (size_t at = 0; at < unit.size();) {
      const size_t end = std::min(unit.find_first_of(" ^/*()", at), unit.size());
      if (end > at) {
        word(unit.substr(at, end - at));
        at = end;
      } else if (unit[at] == '^') {
        int power = 0;
        const char* const begin = unit.data() + at + 1;
        const auto [stop, error] = std::from_chars(begin, unit.data() + unit.size(), power);
        if (error == std::errc() && std::abs(power) < 100) raise(power - 1);
        at = static_cast<size_t>(stop - unit.data());
      } else {
        if (unit[at] == '/') sign_ = -1;
        ++at;
      }
    }
    return std::move(powers_);
  }

 private:
  void word(std::string_view text) {
    const std::string lower = to_lower_ascii(text);
    if (lower == "of" || lower == "the") return;
    if (lower == "per") {
      sign_ = -1;
    } else if (lower == "square" || lower == "sq") {
      next_ = 2;
    } else if (lower == "cubic" || lower == "cu") {
      next_ = 3;
    } else if (lower == "squared" || lower == "cubed") {
      raise(lower == "squared" ? 1 : 2);
    } else if (const Prefix* prefix =
                   lone_prefix(text)) {  // \kilo\gram, \mu\text{m}, \text{k}\Omega
      prefix_ = prefix->name;
    } else {
      add(text);
    }
  }

  static const Prefix* lone_prefix(std::string_view text) {
    const auto prefix =
        std::find_if(std::begin(kPrefixes), std::end(kPrefixes), [&](const Prefix& one) {
          return one.name == text || (one.letter == text && spellings().count(text) == 0);
        });
    return prefix == std::end(kPrefixes) ? nullptr : prefix;
  }

  void add(std::string_view text) {
    const std::string root = prefix_ + root_of(text);
    prefix_.clear();
    const size_t stroke = root.find('/');
    last_ = root.substr(0, stroke);
    powers_[last_] += sign_ * next_;
    if (stroke != std::string::npos) powers_[root.substr(stroke + 1)] -= sign_ * next_;
    next_ = 1;
  }

  void raise(int more) {
    if (!last_.empty()) powers_[last_] += sign_ * more;
  }

  std::map<std::string, int> powers_;
  std::string last_, prefix_;
  int sign_ = 1, next_ = 1;
};

}  // namespace

std::string canonical_unit(std::string_view unit) {
  std::string out;
  for (const auto& [root, power] : UnitReader().read(unit)) {
    if (power == 0) continue;
    if (!out.empty()) out += ' ';
    out += root;
    if (power != 1) out += '^' + std::to_string(power);
  }
  return out;
}

bool is_known_unit(std::string_view canonical) {
  const std::string_view first = canonical.substr(0, canonical.find_first_of(" ^"));
  return !exact_root(first).empty() || magnitude_of(first);
}

bool is_unit_letter(std::string_view name) {
  return (name.size() == 1 || name == "Omega") && spellings().count(name) > 0;
}

std::optional<Rational> magnitude_of(std::string_view word) {
  const std::string lower = to_lower_ascii(word);
  std::string_view view = lower;
  for (const Magnitude& magnitude : kMagnitudes) {
    if (view != magnitude.word && view != std::string(magnitude.word) + "s") continue;
    return Rational(magnitude.above, magnitude.below);
  }
  return std::nullopt;
}

Ref product_of_unit_letters(std::string_view canonical) {
  std::vector<Ref> factors;
  for (const auto& [root, power] : UnitReader().read(canonical)) {
    const auto letter =
        std::find_if(spellings().begin(), spellings().end(), [&, &root = root](const auto& entry) {
          return entry.second == root && is_unit_letter(entry.first);
        });
    if (letter == spellings().end()) return nullptr;
    factors.push_back(make_pow(make_symbol(std::string(letter->first)), make_number(power)));
  }
  return factors.empty() ? nullptr : make_mul(std::move(factors));
}

}  // namespace slimexx::reward::latex
