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
  // By rank of groups.etp: where its rows are among the M. In a plan, whose O and M are the most
  // that may come, as many as an even spread brings, for these are what is sent.
  std::vector<dist::Range> etp_rows = {};
  // Of the M received rows, each a token with one choice: a routed row is the received row's place
  // among those of all local copies. In the arena of plan_dispatch.
  ops::RoutedRows routed = {};
  int64_t num_received() const { return routed.choices.dim(0); }
};

// `routed` was sorted by copies [T,k], in [0, C). Waits for the device once, for the number of rows
// to come, and so cannot be recorded in a graph.
// A planning context has the most rows that may come to any rank.
ExpertDispatch plan_dispatch(const ops::Context& ctx, const ExpertPlacement& placement,
                             const ops::RoutedRows& routed, tensor::Tensor copies);

// The most rows that the ranks of groups.ep and groups.etp may have for the copies of one of them,
// of k choices of each token of all (Context::most_ep_rows), or of as many as this one, each.
int64_t most_rows_of_ranks(const ops::Context& ctx, const ExpertPlacement& placement,
                           tensor::Tensor copies);

// y[M,H] gets the rows of x[T,H] for the copies here, by copy.
void dispatch_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                   tensor::Tensor x, const ops::RoutedRows& routed);
// y[R,H] gets the rows[M,H] of the experts, as `routed` of dispatch_rows orders them: the sum of
// what the etp ranks have.
void return_rows(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                 tensor::Tensor rows);
// The same of this etp rank's columns: [M,W].
void dispatch_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                      tensor::Tensor x, const ops::RoutedRows& routed);
void return_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor columns);
// As the rows, of one i32 or f32 a choice: [T,k] here and [M,1] at the experts, where they stand as
// they were received: by choice of dispatch.routed. Those that return lose their content.
void dispatch_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                      tensor::Tensor x, const ops::RoutedRows& routed);
void return_choices(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor values, const ops::RoutedRows& routed);

// Of the M rows: y[M,e*F] gets the columns x[M,F] of all e etp ranks.
void gather_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                    tensor::Tensor x);
// y[M,F] gets this rank's columns of the sum of the etp ranks' x[M,e*F].
void sum_columns(const ops::Context& ctx, const ExpertDispatch& dispatch, tensor::Tensor y,
                 tensor::Tensor x);

}  // namespace slimexx::model
