// Dispatch and combine of routed rows in expert parallelism (groups.ep).
//
// Each rank holds consecutive copies of experts (ExpertPlacement), so rows sorted by copy are also
// sorted by destination rank. The receiver of a copy's rows orders them by source rank, and by
// token within a rank. Returned rows come back to the positions that they were sent from. So a
// token's sum over experts has the same terms in the same order for any grid and any number of
// copies (numerics contract, N5).
//
// Collective: every rank of the group makes the same calls, even with no tokens.
//
// With tensor parallelism inside experts (groups.etp), ranks of equal etp rank first exchange rows
// as above. Then the ranks of one etp group all-gather the rows that they received, and each
// computes its own columns of the products for all of them. The functions for rows move whole rows:
// every etp rank reads them, or each holds one term of their sum. The functions for columns move
// only the columns of one etp rank.
//
// Legend: T tokens of this rank, C copies of experts, k experts per token, R = T*k routed rows of
// this rank, O rows received for this rank's copies, M their sum over the etp ranks; H hidden size,
// e etp ranks, W = H / e.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/expert_placement.h"
#include "slimexx/ops/experts.h"

namespace slimexx::model {

struct ExpertDispatch {
  std::vector<int64_t> send_rows, receive_rows;  // by rank of groups.ep; they sum to R and to O
  int64_t num_own = 0;                           // O
  // By rank of groups.etp: the range of its rows among the M. In a planning context O and M are
  // upper bounds, but these ranges assume an even spread: they determine the bytes counted as sent.
  std::vector<dist::Range> etp_rows = {};
  // Sorts the M received rows by local copy. Each row counts as a token with one choice. Allocated
  // by plan_dispatch.
  ops::RoutedRows routed = {};
  int64_t num_received() const { return routed.choices.dim(0); }
};

// `routed` was sorted by copies [T,k], each in [0, C). Waits for the device once, to read the row
// counts, and so cannot be recorded in a graph. A planning context uses upper bounds instead.
ExpertDispatch plan_dispatch(const ops::Context& ctx, const ExpertPlacement& placement,
                             const ops::RoutedRows& routed, tensor::Tensor copies);

// Upper bound on the rows that the EP x ETP group sends to the copies of one rank. The group's
// tokens are bounded by Context::most_ep_rows, or by this rank's tokens times the ranks if that is
// more; each token has k choices.
int64_t most_rows_of_ranks(const ops::Context& ctx, const ExpertPlacement& placement,
                           tensor::Tensor copies);

// Dispatch: y[M,H] gets the rows of all ranks' x[T,H] for the local copies, sorted by copy.
void dispatch_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                   tensor::Tensor x, const ops::RoutedRows& routed);
// Returns the experts' outputs: y[R,H] gets rows[M,H], summed over the etp ranks, in the order of
// the `routed` given to dispatch_rows.
void return_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                 tensor::Tensor rows);
// Like dispatch_rows and return_rows, for only this etp rank's columns: y[M,W] and columns[M,W].
void dispatch_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                      tensor::Tensor x, const ops::RoutedRows& routed);
void return_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor columns);
// Like dispatch_rows and return_rows, for one i32 or f32 per choice: [T,k] for the tokens of this
// rank, [M,1] for received rows in the order received (the order that dispatch.routed.choices
// indexes). return_choices overwrites `values`.
void dispatch_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                      tensor::Tensor x, const ops::RoutedRows& routed);
void return_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor values, const ops::RoutedRows& routed);

// All-gather of columns: y[M,e*F] gets the columns x[M,F] of all e etp ranks.
void gather_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor x);
// Reduce-scatter of columns: y[M,F] gets this rank's columns of the sum of x[M,e*F] over etp ranks.
void sum_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                 tensor::Tensor x);

}  // namespace slimexx::model
