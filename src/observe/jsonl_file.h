// metrics.jsonl: one flat object a line; a file cut off anywhere stays usable.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace slimexx::observe {

// Removes a torn last line and the rows whose `key` is >= resume_step, so that a resumed run does
// not leave two rows for a step. Replaces the file atomically, and only if something has to go.
void trim_rows(const std::string& path, const std::string& key, int64_t resume_step);

}  // namespace slimexx::observe
