// A request in flight.
#pragma once
#include <cstdint>
#include <vector>

#include "rollout/scheduling/page_pool.h"
#include "rollout/stop_matcher.h"
#include "slimexx/rollout/engine.h"

namespace slimexx::rollout {

struct Sequence {
  Request request;
  uint64_t arrival = 0;  // order among all requests; kept through preemption
  // Prompt, then response. The newest may be negative: ~row, if row `row` of the step in flight
  // samples it.
  std::vector<TokenId> tokens;
  std::vector<float> log_probs;  // one per response token
  StopMatcher stop_matcher;
  int64_t max_tokens = 0;  // length at which the sequence ends
  bool is_finished = false;
  // Guesses of the tokens after `tokens`, for the step being planned or in flight.
  std::vector<TokenId> drafts;
  // For the same step: take free pages for up to this many tokens.
  int64_t wanted_tokens = 0;
  int64_t num_accepted = 0;         // accepted drafts among the rows recorded so far
  std::vector<TokenId> mtp_drafts;  // MTP drafts of the tokens after the last one

  // Owned by the scheduler:
  int64_t num_computed = 0;  // tokens whose keys and values are in `pages` after the planned step
  int64_t furthest_computed = 0;  // the maximum that num_computed ever had
  std::vector<PageId> pages;
  bool is_planned = false;  // has a chunk in the step being planned
  bool is_removed = false;
  int64_t cached_tokens = 0;
  int64_t num_preemptions = 0;

  int64_t num_tokens() const { return static_cast<int64_t>(tokens.size()); }
  int64_t num_prompt_tokens() const { return num_tokens() - num_response_tokens(); }
  int64_t num_response_tokens() const { return static_cast<int64_t>(log_probs.size()); }
  int64_t num_pending() const { return num_tokens() - num_computed; }

  // Row `row` of a launched step samples the next token.
  void expect_token(size_t row) {
    tokens.push_back(~static_cast<TokenId>(row));
    log_probs.push_back(0);
  }
  void learn_token(TokenId token, float log_prob) {
    tokens.back() = token;
    log_probs.back() = log_prob;
  }
  void forget_drafts() {
    drafts.clear();
    wanted_tokens = 0;
  }
  int64_t num_known() const { return num_tokens() - (!tokens.empty() && tokens.back() < 0); }
};

}  // namespace slimexx::rollout
