#include "text/normalizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "slimexx/base/strings.h"
#include "text/bpe/byte_level.h"
#include "text/regex/char_class.h"
#include "text/replacement.h"
#include "text/unicode_form.h"

namespace slimexx::text {
namespace {

constexpr int kMaxNesting = 16;

std::string_view strip_space(std::string_view text, bool left, bool right) {
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    size_t at = begin;
    if (!is_white_space(next_code_point(text, at))) break;
    begin = at;
  }
  while (right && end > begin) {
    const size_t start = previous_character(text, end);
    size_t at = start;
    if (!is_white_space(next_code_point(text, at))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

}  // namespace

struct Normalizer::Step {
  enum class Kind { kForm, kLowercase, kStrip, kStripAccents, kReplace, kPrepend, kByteLevel };
  Kind kind;
  UnicodeForm form = UnicodeForm::kNfc;
  bool left = false, right = false;
  std::string text;
  std::optional<Replacement> replacement;
  std::string where;  // path in tokenizer.json

  bool changes(std::string_view input) const {
    return !input.empty() && !(kind == Kind::kForm && is_surely_normal(input, form));
  }
  std::string apply(std::string_view input, size_t original_bytes) const;
};

std::string Normalizer::Step::apply(std::string_view input, size_t original_bytes) const {
  switch (kind) {
    case Kind::kForm:
      return to_unicode_form(input, form);
    case Kind::kLowercase:
      return to_lower_unicode(input);
    case Kind::kStrip:
      return std::string(strip_space(input, left, right));
    case Kind::kStripAccents:
      return remove_marks(input);
    case Kind::kReplace:
      return replacement->apply(input, original_bytes);
    case Kind::kPrepend:
      return text + std::string(input);
    case Kind::kByteLevel:
      return map_bytes(input);
  }
  return std::string(input);
}

Normalizer::Normalizer() = default;
Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer& Normalizer::operator=(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

Normalizer Normalizer::build(const std::optional<TokenizerSpec>& spec) {
  Normalizer normalizer;
  if (spec) add_steps(*spec, 0, normalizer.steps_);
  return normalizer;
}

void Normalizer::add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps) {
  using Kind = Step::Kind;
  const std::string type = spec.type();
  const auto add_form = [&](UnicodeForm form) {
    steps.push_back(
        {.kind = Kind::kForm, .form = form, .text = {}, .replacement = {}, .where = spec.where()});
  };
  const auto add = [&](Kind kind) -> Step& {
    steps.push_back({.kind = kind, .text = {}, .replacement = {}, .where = spec.where()});
    return steps.back();
  };
  if (type == "Sequence") {
    if (depth == kMaxNesting) throw spec.error("sequences are nested too deep");
    for (const auto& element : spec.elements("normalizers")) add_steps(element, depth + 1, steps);
  } else if (type == "NFC") {
    add_form(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    add_form(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    add_form(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    add_form(UnicodeForm::kNfkd);
  } else if (type == "Lowercase") {
    add(Kind::kLowercase);
  } else if (type == "StripAccents") {
    add(Kind::kStripAccents);
  } else if (type == "ByteLevel") {
    add(Kind::kByteLevel);
  } else if (type == "Strip") {
    Step& step = add(Kind::kStrip);
    step.left = spec.boolean("strip_left");
    step.right = spec.boolean("strip_right");
  } else if (type == "Replace") {
    add(Kind::kReplace).replacement = Replacement::read(spec);
  } else if (type == "Prepend") {
    add(Kind::kPrepend).text = spec.string("prepend");
  } else {
    spec.unsupported(fmt::format("the normalizer {}", type));
  }
}

std::string_view Normalizer::apply(std::string_view text, std::string& storage) const {
  std::string_view current = text;
  for (const Step& step : steps_) {
    if (!step.changes(current)) continue;
    std::string next = step.apply(current, text.size());
    if (next.size() > limit_of_growth(text.size())) throw growth_error(step.where, text.size());
    storage = std::move(next);
    current = storage;
  }
  return current;
}

bool Normalizer::maps_to_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.kind == Step::Kind::kByteLevel; });
}

}  // namespace slimexx::text
