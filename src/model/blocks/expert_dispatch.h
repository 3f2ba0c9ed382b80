// Routed rows to the ranks of their experts and back (expert parallelism, groups.ep).
//
// Ranks hold consecutive copies of experts (ExpertPlacement), so that rows that stand by copy also
// stand by the rank they go to. The owner of a copy has its rows by source rank, and of a rank by
// token. What comes back stands where it stood before it went, so a token's sum over experts is
// made of the same terms in the same order whatever grid and copies are (numerics contract, N5).
//
// All ranks of the group call alike, those without tokens too.
//
// With tensor parallelism inside experts (groups.etp) ranks of equal etp rank exchange rows as
// above, then those of one etp group hold what all of them got: each computes its own columns of
// these rows' products. What goes between them is whole rows, which every rank needs or adds a term
// to, or columns, of which every rank has its own.
//
// Legend: T tokens of this rank, C copies of experts, k experts of a token, R = T*k routed rows of
// this rank, O rows that this rank's copies receive, M those of all etp ranks together; H hidden
// size, W = H / etp ranks.
#pragma once
#include <cstdint>
#include <vector>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/expert_placement.h"
#include "slimexx/ops/experts.h"

namespace slimexx::model {

struct ExpertDispatch {
  std::vector<int64_t> send_rows, receive_rows;  // by rank of groups.ep; sum up to R and to O
  int64_t num_own = 0;                           // O
  // By rank of groups.etp: the range of its rows among the M. In a plan, O and M are upper bounds,
  // but these ranges have the size of an even spread, which is what is counted as sent.
  std::vector<dist::Range> etp_rows = {};
  // Sorts the M received rows by local copy; each row counts as a token with one choice. In the
  // arena of plan_dispatch.
  ops::RoutedRows routed = {};
  int64_t num_received() const { return routed.choices.dim(0); }
};

// `routed` was sorted by copies [T,k], in [0, C). Waits for the device once, to read the number of
// rows to receive, and so cannot be recorded in a graph. A planning context uses the upper bound on
// the rows of any rank.
ExpertDispatch plan_dispatch(const ops::Context& ctx, const ExpertPlacement& placement,
                             const ops::RoutedRows& routed, tensor::Tensor copies);

// Upper bound on the rows that the EP x ETP group sends to the copies of one rank. The group's
// tokens are bounded by Context::most_ep_rows, or by this rank's tokens times the ranks if that is
// more; each token has k choices.
int64_t most_rows_of_ranks(const ops::Context& ctx, const ExpertPlacement& placement,
                           tensor::Tensor copies);

// Dispatch: y[M,H] gets the rows of x[T,H] of all ranks for the local copies, by copy.
void dispatch_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                   tensor::Tensor x, const ops::RoutedRows& routed);
// The way back: y[R,H], in the order of `routed` of dispatch_rows, gets the experts' rows[M,H],
// summed over the etp ranks.
void return_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                 tensor::Tensor rows);
// The same with only this etp rank's columns: [M,W].
void dispatch_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                      tensor::Tensor x, const ops::RoutedRows& routed);
void return_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor columns);
// The same for one i32 or f32 per choice: [T,k] at the tokens and [M,1] at the experts, there in
// the order received (by choice of dispatch.routed). return_choices overwrites `values`.
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
