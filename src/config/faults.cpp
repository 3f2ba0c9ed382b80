#include "config/faults.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "slimexx/base/error.h"
#include "slimexx/base/strings.h"
#include "slimexx/base/url.h"

namespace slimexx::config {
namespace {

constexpr size_t kMaxListed = 40;
constexpr size_t kMaxKept = 1000;
constexpr size_t kMaxQuoted = 60;

// A key from the file for a message; quoted and escaped unless it is plain text.
std::string show_key(const std::string& key) {
  constexpr size_t kMaxPlain = 200;
  const bool plain = key.size() <= kMaxPlain && std::all_of(key.begin(), key.end(), [](char c) {
                       return c > ' ' && c <= '~';
                     });
  return plain ? key : quote_value(key);
}

std::string headline(const Fault& fault) {
  return fault.key.empty() ? fault.reason
                           : fmt::format("{}: {}", show_key(fault.key), fault.reason);
}

// Whether `path` is `key` or lies within it: "a.b" and "a[1]" lie within "a".
bool is_within(std::string_view path, std::string_view key) {
  if (key.empty() || !path.starts_with(key)) return false;
  return path.size() == key.size() || path[key.size()] == '.' || path[key.size()] == '[';
}

std::tuple<int32_t, int32_t, int32_t> order_of(const Fault& fault) {
  constexpr int32_t kLast = std::numeric_limits<int32_t>::max();
  if (fault.place.file < 0) return {kLast, 0, 0};
  return {fault.place.file, fault.place.line, fault.place.column};
}

}  // namespace

void FaultList::add(Fault fault) {
  const auto same = [&](const Fault& other) {
    return other.where == fault.where && other.key == fault.key && other.reason == fault.reason;
  };
  // kMaxKept bounds the number of comparisons.
  if (faults_.size() < kMaxKept && std::none_of(faults_.begin(), faults_.end(), same)) {
    faults_.push_back(std::move(fault));
  }
}

void FaultList::append(const FaultList& others) {
  for (const Fault& fault : others.faults_) add(fault);
}

bool FaultList::concerns(std::string_view key) const {
  return std::any_of(faults_.begin(), faults_.end(), [&](const Fault& fault) {
    return is_within(key, fault.key) || is_within(fault.key, key);
  });
}

void throw_fault(const Fault& fault) {
  throw Error(ErrorCode::kUsage, headline(fault), fault.hint, fault.where);
}

void FaultList::throw_if_any() const {
  if (faults_.empty()) return;
  if (faults_.size() == 1) throw_fault(faults_.front());
  std::string text = fmt::format("the configuration has {}{} faults",
                                 faults_.size() == kMaxKept ? "at least " : "", faults_.size());
  // If there are too many, list those found first: unreadable values come before unknown keys.
  std::vector<Fault> listed(faults_.begin(), faults_.begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                   faults_.size(), kMaxListed)));
  std::stable_sort(listed.begin(), listed.end(), [](const Fault& one, const Fault& other) {
    return order_of(one) < order_of(other);
  });
  for (const Fault& fault : listed) {
    text += "\n  ";
    if (!fault.where.empty()) text += fault.where + "  ";
    text += headline(fault);
    if (!fault.hint.empty()) text += "\n      hint: " + fault.hint;
  }
  if (faults_.size() > kMaxListed)
    text += fmt::format("\n  and {} more", faults_.size() - kMaxListed);
  throw Error(ErrorCode::kUsage, text);
}

std::string quote_value(std::string_view text) {
  const std::string valid =
      replace_invalid_utf8(hide_secrets_in_text(text).substr(0, 4 * kMaxQuoted));
  std::string out = "\"";
  size_t shown = 0;
  for (size_t position = 0; position < valid.size(); ++shown) {
    if (shown == kMaxQuoted) return out + "...\"";
    const uint32_t code = next_code_point(valid, position);
    const bool control = code < 0x20 || (code >= 0x7F && code < 0xA0);
    // Characters that reorder or break a line on a terminal.
    const bool direction = code == 0x200E || code == 0x200F || (code >= 0x2028 && code <= 0x202E) ||
                           (code >= 0x2066 && code <= 0x2069);
    if (code == '\n') {
      out += "\\n";
    } else if (code == '\t') {
      out += "\\t";
    } else if (code == '"') {
      out += "\\\"";
    } else if (control || direction) {
      out += fmt::format("\\u{:04x}", code);
    } else {
      append_utf8(out, code);
    }
  }
  return out + (text.size() > 4 * kMaxQuoted ? "...\"" : "\"");
}

}  // namespace slimexx::config
