// Everything that is compiled once per instruction set: the includer defines SLX_ISA (a namespace)
// and SLX_ISA_TABLE (the table to fill). All of it has internal linkage.
#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "ops/cpu/isa/kernel_table.h"

namespace slimexx::ops::cpu {
namespace {
namespace SLX_ISA {
#include "ops/cpu/isa/vec.inl"
#include "ops/cpu/isa/matmul.inl"
#include "ops/cpu/isa/rows.inl"
#include "ops/cpu/isa/softmax.inl"
}  // namespace SLX_ISA
}  // namespace

extern const KernelTable SLX_ISA_TABLE;
const KernelTable SLX_ISA_TABLE = {
    .name = SLX_ISA::kName,
    .rows = SLX_ISA::kRows,
    .columns = SLX_ISA::kColumns,
    .pack_a = SLX_ISA::pack_a,
    .pack_b = SLX_ISA::pack_b,
    .multiply_panel = SLX_ISA::multiply_panel,
    .multiply_block = SLX_ISA::multiply_block,
    .transpose_rows = SLX_ISA::transpose_rows,
    .max_value = SLX_ISA::max_value,
    .dot = SLX_ISA::dot,
    .sum_exp = SLX_ISA::sum_exp,
    .sum_p_log_p = SLX_ISA::sum_p_log_p,
    .exp_shifted = SLX_ISA::exp_shifted,
    .divide_and_max = SLX_ISA::divide_and_max,
    .layer_norm_row = SLX_ISA::layer_norm_row,
    .rms_norm_row = SLX_ISA::rms_norm_row,
    .rms_norm_backward_row = SLX_ISA::rms_norm_backward_row,
    .accumulate_scaled_product = SLX_ISA::accumulate_scaled_product,
    .accumulate = SLX_ISA::accumulate,
    .swiglu_row = SLX_ISA::swiglu_row,
    .swiglu_backward_row = SLX_ISA::swiglu_backward_row,
    .softmax_block = SLX_ISA::softmax_block,
    .scale_row = SLX_ISA::scale_row,
    .scale_row_into = SLX_ISA::scale_row_into,
    .softmax_from_lse = SLX_ISA::softmax_from_lse,
    .softmax_backward = SLX_ISA::softmax_backward,
    .log_probs_backward_row = SLX_ISA::log_probs_backward_row,
    .adamw = SLX_ISA::adamw,
    .widen_bf16 = SLX_ISA::widen_bf16,
    .round_to_bf16 = SLX_ISA::round_to_bf16,
    .sum_of_squares = SLX_ISA::sum_of_squares,
};

}  // namespace slimexx::ops::cpu
