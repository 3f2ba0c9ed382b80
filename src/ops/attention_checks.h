// The check of an attention layout, for all ops that read keys.
#pragma once
#include <cstdint>

#include "slimexx/ops/attention.h"

namespace slimexx::ops {

// Checks that cu_seqlens ascends from 0 to num_tokens, and that context lengths, pages and a
// selection fit.
void check_layout(const char* op, const AttentionLayout& layout, const Context& ctx,
                  int64_t num_tokens);

}  // namespace slimexx::ops
