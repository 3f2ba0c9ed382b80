#include "text/regex/regex.h"

#include <fmt/core.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <new>

#include "slimexx/base/error.h"

namespace slimexx::text {
namespace {

constexpr size_t kMaxPatternBytes = 64 << 10;
// Backtracking steps that one match may take. Published patterns take one step per character of a
// run of white space.
constexpr uint64_t kBaseMatchLimit = 2'000'000;
constexpr uint64_t kMatchLimitPerByte = 4;
constexpr const char* kBacktracks = "use a pattern that does not backtrack over long spans";
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kJitStackBytes = 4 << 20;

// The match limit does not count the steps of simple repeats, so a search also has a budget of CPU
// time. The budget is checked whenever this many character steps may have passed.
constexpr uint64_t kStepsBetweenChecks = uint64_t{1} << 27;
constexpr double kBaseSeconds = 2.0;
constexpr double kSecondsPerMegabyte = 1.0;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The working memory of a match, besides the pattern; one per thread, since threads cannot share
// it.
struct MatchSpace {
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(32 << 10, kJitStackBytes, nullptr);

  MatchSpace() {
    if (!context || !data || !stack) throw std::bad_alloc();
    pcre2_set_heap_limit(context, kHeapLimitKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  MatchSpace(const MatchSpace&) = delete;
  MatchSpace& operator=(const MatchSpace&) = delete;
  ~MatchSpace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

MatchSpace& match_space() {
  thread_local MatchSpace space;
  return space;
}

std::string pcre_message(int code) {
  unsigned char buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof(buffer));
  return reinterpret_cast<const char*>(buffer);
}

size_t next_character(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) ++at;
  return at;
}

}  // namespace

struct Regex::Code {
  pcre2_code* compiled = nullptr;
  bool jit = false;
  std::string shown;  // in the form of the file
  std::string where;

  ~Code() { pcre2_code_free(compiled); }
  [[noreturn]] void fail(const std::string& what, const std::string& hint) const {
    throw Error(ErrorCode::kInput,
                fmt::format("the regular expression {} {}", shown.substr(0, 300), what), hint,
                where);
  }
  int match(std::string_view subject, size_t from, size_t last_start, MatchSpace& space) const;
};

int Regex::Code::match(std::string_view subject, size_t from, size_t last_start,
                       MatchSpace& space) const {
  pcre2_set_offset_limit(space.context, last_start);
  const auto* text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (jit) {
    result = pcre2_jit_match(compiled, text, subject.size(), from, PCRE2_NO_UTF_CHECK, space.data,
                             space.context);
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(compiled, text, subject.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         space.data, space.context);
  }
  return result;
}

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Regex Regex::build(const std::string& shown, const std::string& pattern, unsigned options,
                   const std::string& where) {
  auto code = std::make_unique<Code>();
  code->shown = shown;
  code->where = where;
  if (shown.size() > kMaxPatternBytes)
    code->fail("is longer than 64 KiB", "write a shorter pattern");
  int error = 0;
  PCRE2_SIZE offset = 0;
  std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  code->compiled =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    options | PCRE2_UTF | PCRE2_USE_OFFSET_LIMIT, &error, &offset, context.get());
  if (code->compiled == nullptr) {
    code->fail(fmt::format("does not compile: {} at byte {} of {}", pcre_message(error), offset,
                           pattern.substr(0, 600)),
               "fix the pattern, or write it without features that PCRE2 lacks");
  }
  code->jit = pcre2_jit_compile(code->compiled, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

Regex Regex::compile(const std::string& pattern, const std::string& where) {
  return build(pattern, rewrite_regex(pattern, where),
               PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, where);
}

Regex Regex::literal(const std::string& text, const std::string& where) {
  return build(text, text, PCRE2_LITERAL, where);
}

void Regex::find_all(std::string_view subject, std::vector<TextRange>& matches) const {
  MatchSpace& space = match_space();
  const uint64_t limit = kBaseMatchLimit + kMatchLimitPerByte * subject.size();
  pcre2_set_match_limit(space.context,
                        static_cast<uint32_t>(std::min<uint64_t>(limit, UINT32_MAX)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(space.data);
  // One call tries at most `window` starts, so that even a pattern that scans to the end of the
  // subject from every start returns soon.
  const size_t window = std::max<size_t>(64, kStepsBetweenChecks / (subject.size() + 1));
  const double budget =
      kBaseSeconds + kSecondsPerMegabyte * 1e-6 * static_cast<double>(subject.size());
  double started = -1;
  uint64_t steps = 0;
  size_t at = 0, last_end = std::string_view::npos;
  while (at <= subject.size()) {
    steps += subject.size() + 1;
    if (steps > kStepsBetweenChecks) {
      steps = 0;
      if (started < 0) started = thread_seconds();
      if (thread_seconds() - started > budget)
        code_->fail("takes too long on this text", kBacktracks);
    }
    const size_t last_start = std::min(subject.size(), at + window);
    const int result = code_->match(subject, at, last_start, space);
    if (result == PCRE2_ERROR_NOMATCH) {
      at = next_character(subject, last_start);
      steps =
          kStepsBetweenChecks;  // assume that every start scanned to the end: check the budget next
      continue;
    }
    if (result < 0)
      code_->fail(fmt::format("gives up on this text: {}", pcre_message(result)), kBacktracks);
    const TextRange match{bounds[0], bounds[1]};
    // \K can set the start after the end, or before text already consumed.
    if (match.begin > match.end || match.end < at) {
      code_->fail("uses \\K, which is not supported", "write the pattern without it");
    }
    if (match.begin == match.end && match.end == last_end) {
      at = next_character(subject, at);
      continue;
    }
    matches.push_back(match);
    last_end = at = match.end;
  }
}

}  // namespace slimexx::text
