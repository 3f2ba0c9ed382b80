// metrics.jsonl: one flat object per line; a truncated file stays usable.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx::observe {

// Removes a truncated last line and the rows with `key` >= resume_step, so that a resumed run does
// not have two rows for a step. Replaces the file atomically, and only if a line must be removed.
void trim_rows(const std::string& path, const std::string& key, int64_t resume_step);

}  // namespace slimexx::observe
