#include "text/pre_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>

#include "slimexx/base/strings.h"
#include "text/bpe/byte_level.h"
#include "text/regex/char_class.h"
#include "text/replacement.h"
#include "text/split_behavior.h"

namespace slimexx::text {
namespace {

constexpr int kMaxNesting = 16;

// GPT-2's words: the ByteLevel step splits by this pattern if use_regex is set.
constexpr const char* kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Rust's \w+|[^\w\s]+. Rust's \w includes the joiners U+200C and U+200D; apart from them,
// Oniguruma's \w inside a class is the same as Rust's.
constexpr const char* kWhitespacePattern = R"([\w\u200c\u200d]+|[^\w\s\u200c\u200d]+)";

using CharacterTest = bool (*)(uint32_t);

void find_characters(std::string_view text, CharacterTest test, std::vector<TextRange>& matches) {
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    if (test(next_code_point(text, at))) matches.push_back({begin, at});
  }
}

std::string replace_spaces(std::string_view text, std::string_view replacement) {
  std::string out;
  for (const char c : text) {
    if (c == ' ') {
      out += replacement;
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

struct PreTokenizer::Step {
  // A Step may prepend or replace, then splits by a pattern or a class of characters, then may map
  // the bytes.
  std::optional<Regex> pattern;
  CharacterTest characters = nullptr;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;

  bool prepend_space = false;  // ByteLevel's add_prefix_space
  bool map_to_bytes = false;
  bool byte_level = false;

  std::string metaspace;  // "" if the step is not a Metaspace
  enum class Prepend { kAlways, kFirst, kNever } prepend = Prepend::kNever;

  std::string_view prepare(std::string_view word, bool first,
                           std::deque<std::string>& storage) const;
  void apply(std::string_view word, bool first, WordList& list) const;

  static Step read_byte_level(const TokenizerSpec& spec);
  static Step read_split(const TokenizerSpec& spec);
  static Step read_metaspace(const TokenizerSpec& spec);
  static Step for_characters(CharacterTest test, SplitBehavior behavior);
};

PreTokenizer::Step PreTokenizer::Step::read_byte_level(const TokenizerSpec& spec) {
  Step step;
  step.byte_level = step.map_to_bytes = true;
  step.prepend_space = spec.boolean("add_prefix_space");
  if (spec.boolean_or("use_regex", true)) {
    step.pattern = Regex::compile(kByteLevelPattern, spec.where());
  }
  return step;
}

PreTokenizer::Step PreTokenizer::Step::read_split(const TokenizerSpec& spec) {
  Step step;
  step.pattern = read_pattern(spec);
  step.behavior = read_split_behavior(spec);
  step.invert = spec.boolean_or("invert", false);
  return step;
}

PreTokenizer::Step PreTokenizer::Step::read_metaspace(const TokenizerSpec& spec) {
  Step step;
  step.metaspace = spec.string("replacement");
  size_t end = 0;
  if (!step.metaspace.empty()) next_code_point(step.metaspace, end);
  if (step.metaspace.empty() || end != step.metaspace.size()) {
    throw spec.error("\"replacement\" must be one character");
  }
  const std::string scheme = spec.string_or("prepend_scheme", "always");
  if (scheme == "always") {
    step.prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    step.prepend = Prepend::kFirst;
  } else if (scheme != "never") {
    spec.unsupported(fmt::format("the prepend_scheme {}", scheme));
  }
  // Older files have add_prefix_space instead of prepend_scheme.
  if (!spec.boolean_or("add_prefix_space", true) && step.prepend != Prepend::kNever) {
    if (spec.find("prepend_scheme"))
      throw spec.error("add_prefix_space contradicts prepend_scheme");
    step.prepend = Prepend::kNever;
  }
  if (spec.boolean_or("split", true)) {
    step.pattern = Regex::literal(step.metaspace, spec.where());
    step.behavior = SplitBehavior::kMergedWithNext;
  }
  return step;
}

PreTokenizer::Step PreTokenizer::Step::for_characters(CharacterTest test, SplitBehavior behavior) {
  Step step;
  step.characters = test;
  step.behavior = behavior;
  return step;
}

std::string_view PreTokenizer::Step::prepare(std::string_view word, bool first,
                                             std::deque<std::string>& storage) const {
  if (prepend_space && !word.starts_with(' ')) {
    return storage.emplace_back(" " + std::string(word));
  }
  if (metaspace.empty()) return word;
  std::string& out = storage.emplace_back(replace_spaces(word, metaspace));
  if ((prepend == Prepend::kAlways || (prepend == Prepend::kFirst && first)) &&
      !out.starts_with(metaspace)) {
    out.insert(0, metaspace);
  }
  return out;
}

void PreTokenizer::Step::apply(std::string_view word, bool first, WordList& list) const {
  word = prepare(word, first, list.storage);
  const size_t begin = list.words.size();
  if (pattern || characters != nullptr) {
    thread_local std::vector<TextRange> matches;
    matches.clear();
    if (pattern) {
      pattern->find_all(word, matches);
    } else {
      find_characters(word, characters, matches);
    }
    split_by_matches(word, matches, behavior, invert, list.words);
    if (matches.capacity() > (1 << 16)) matches = {};
  } else {
    list.words.push_back(word);
  }
  if (!map_to_bytes) return;
  for (size_t i = begin; i < list.words.size(); ++i) {
    list.words[i] = list.storage.emplace_back(map_bytes(list.words[i]));
  }
}

PreTokenizer::PreTokenizer() = default;
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

PreTokenizer PreTokenizer::build(const std::optional<TokenizerSpec>& spec) {
  PreTokenizer pre_tokenizer;
  if (spec) add_steps(*spec, 0, pre_tokenizer.steps_);
  return pre_tokenizer;
}

void PreTokenizer::add_steps(const TokenizerSpec& spec, int depth, std::vector<Step>& steps) {
  const std::string type = spec.type();
  if (type == "Sequence") {
    if (depth == kMaxNesting) throw spec.error("sequences are nested too deep");
    for (const auto& element : spec.elements("pretokenizers")) add_steps(element, depth + 1, steps);
  } else if (type == "ByteLevel") {
    steps.push_back(Step::read_byte_level(spec));
  } else if (type == "Split") {
    steps.push_back(Step::read_split(spec));
  } else if (type == "Metaspace") {
    steps.push_back(Step::read_metaspace(spec));
  } else if (type == "Digits") {
    const bool individual = spec.boolean_or("individual_digits", false);
    steps.push_back(Step::for_characters(
        is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
  } else if (type == "Punctuation") {
    const auto behavior =
        spec.find("behavior") ? read_split_behavior(spec) : SplitBehavior::kIsolated;
    steps.push_back(Step::for_characters(is_punctuation, behavior));
  } else if (type == "WhitespaceSplit") {
    steps.push_back(Step::for_characters(is_white_space, SplitBehavior::kRemoved));
  } else if (type == "Whitespace") {
    Step step;
    step.pattern = Regex::compile(kWhitespacePattern, spec.where());
    step.behavior = SplitBehavior::kRemoved;
    step.invert = true;
    steps.push_back(std::move(step));
  } else {
    spec.unsupported(fmt::format("the pre-tokenizer {}", type));
  }
}

bool PreTokenizer::maps_to_bytes() const {
  return std::any_of(steps_.begin(), steps_.end(),
                     [](const Step& step) { return step.byte_level; });
}

bool PreTokenizer::ends_in_byte_level() const {
  if (steps_.empty() || !steps_.back().byte_level) return false;
  // If an earlier step has mapped the bytes too, the words are no longer the raw bytes of the text.
  for (size_t i = 0; i + 1 < steps_.size(); ++i) {
    if (steps_[i].byte_level) return false;
  }
  return true;
}

void PreTokenizer::leave_bytes_raw() { steps_.back().map_to_bytes = false; }

void PreTokenizer::split(std::string_view section, bool at_text_start, WordList& list) const {
  list.words.clear();
  list.storage.clear();
  if (section.empty()) return;
  list.words.push_back(section);
  for (const Step& step : steps_) {
    std::swap(list.words, list.scratch);
    list.words.clear();
    for (size_t i = 0; i < list.scratch.size(); ++i) {
      step.apply(list.scratch[i], at_text_start && i == 0, list);
    }
  }
}

}  // namespace slimexx::text
