#include "model/weights/load_faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>

#include "slimexx/base/error.h"
#include "slimexx/base/printable.h"
#include "slimexx/base/thread_pool.h"

namespace slimexx::model {
namespace {

constexpr size_t kMaxFaults = 20, kMaxNameBytes = 160;

// Without the sign bit, infinities and NaNs have the largest bit patterns.
bool are_finite(std::span<const float> values) {
  constexpr int64_t kAtOnce = 1 << 16;  // elements per thread
  std::atomic<bool> finite{true};
  parallel_for(std::ssize(values), kAtOnce, [&](int64_t begin, int64_t end) {
    int32_t greatest = 0;
    for (int64_t i = begin; i < end; ++i)
      greatest =
          std::max(greatest, std::bit_cast<int32_t>(values[static_cast<size_t>(i)]) & 0x7FFFFFFF);
    if (greatest >= 0x7F800000) finite = false;
  });
  return finite;
}

}  // namespace

void Faults::throw_if_any(const std::string& where) const {
  if (lines.empty()) return;
  std::string text =
      fmt::format("{} fault{} in the weights:", lines.size(), lines.size() == 1 ? "" : "s");
  for (size_t i = 0; i < std::min(lines.size(), kMaxFaults); ++i) text += "\n    " + lines[i];
  if (lines.size() > kMaxFaults)
    text += fmt::format("\n    and {} more", lines.size() - kMaxFaults);
  throw Error(ErrorCode::kInput, text,
              "check that config.json belongs to these weights and that every file is complete",
              where);
}

void BadValues::add(std::span<const float> values, int64_t on_disk) {
  if (are_finite(values)) return;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    add({.count = 1, .first = on_disk + static_cast<int64_t>(i)});
  }
}

void BadValues::add(const BadValues& other) {
  if (other.count == 0) return;
  first = count == 0 ? other.first : std::min(first, other.first);
  count += other.count;
}

void add_fault(Faults& faults, const std::string& tensor, const BadValues& bad,
               const std::string& file) {
  if (bad.count == 0) return;
  const std::string values =
      bad.count == 1 ? "1 value is" : fmt::format("{} values are", bad.count);
  faults.lines.push_back(fmt::format("{}: {} NaN or infinite, first at element {}{}{}", tensor,
                                     values, bad.first, file.empty() ? "" : ", in ", file));
}

std::string name_text(const std::string& name) {
  const std::string printable = make_printable(name, kMaxNameBytes);
  return printable == name && !name.empty() ? name : '"' + printable + '"';
}

std::string shape_text(const std::vector<int64_t>& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace slimexx::model
