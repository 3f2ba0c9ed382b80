// Decides for each step which tokens of which sequences one forward computes, and which pages hold
// them. Policy:
//   1. a step has a budget of tokens; sequences with one pending token (decode) come first, then
//      running prompts, then waiting requests, each by arrival; a prompt takes the budget that is
//      left and continues in the next step
//   2. a full page of tokens that any sequence has computed, or computes in this same step, is
//      shared: a forward writes a layer's keys and values before its attention reads them. The last
//      token is always computed, since its logits are needed
//   3. a waiting request starts when there are pages for all its tokens, plus one spare page for
//      each running sequence; strictly by arrival
//   4. when pages run out, the newest running sequence is preempted: it releases its pages, moves
//      to the head of the queue, and is computed again from its tokens
//   5. drafts (guesses of the tokens after a sequence's last one) get chunks of their own after all
//      others, in free pages only; their keys and values count once they are accepted
//   6. the newest token of a sequence may be unknown while the step that samples it is in flight:
//      its place is planned anyway, and a page that it fills is shared once it is known
// Hence decodes are always older than running prompts, which are older than waiting requests; a
// sequence is preempted only before it has a chunk in the step. The oldest sequence always makes
// progress, because it may preempt all others and the cache holds one sequence of the maximum
// length. The scheduler is a pure function of the calls.
#pragma once
#include <cstdint>
#include <deque>
#include <vector>

#include "rollout/scheduling/page_pool.h"
#include "rollout/scheduling/prefix_cache.h"
#include "rollout/scheduling/sequence.h"

namespace slimexx::rollout {

struct SchedulerOptions {
  int64_t page_tokens = 16;
  int64_t num_pages = 0;
  int64_t max_batch_tokens = 2048;
  int64_t max_running = 256;
  bool enable_prefix_cache = true;
};

// A chunk of a step: tokens [begin, begin + count) of a sequence.
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t begin = 0, count = 0;
  bool samples = false;       // the chunk ends with the last token: the next token is sampled
  bool adopts_pages = false;  // another chunk of the step may compute tokens before `begin`
  // 0: not a draft. Otherwise the number of the draft, from 1; its chunk comes after those of the
  // drafts before it.
  int64_t draft = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Sequences are borrowed until removed, and must be added by ascending arrival.
  void add(Sequence* sequence);
  // The chunks of the next step; empty if there is no sequence. Valid until the next call. The
  // caller launches them, then calls finish_step(). Before the next plan, each sampled sequence
  // must have its token appended (known or expected) or be removed. Steps must run in the order of
  // their plans: the next step may write to released pages.
  const std::vector<Chunk>& plan_step();
  void finish_step();
  // Whether every running sequence has one pending token and no sequence waits. Only then may
  // drafts be planned.
  bool only_decodes() const;
  const std::vector<Sequence*>& running() const { return running_; }
  // The sequence's next draft was accepted and is now one of its tokens.
  void accepted_draft(Sequence* sequence);
  // An expected token is now known, and the sequence continues.
  void learned_token(Sequence* sequence);
  // Allowed while the step that samples the sequence's last token is in flight.
  void remove(Sequence* sequence);
  // Forgets every cached prefix; only while there are no sequences.
  void forget_prefixes();

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  // Whether one more request would get a chunk in the next step. An estimate, since the request's
  // length is not known.
  bool has_room() const;
  const PagePool& pages() const { return pool_; }
  const PrefixCache& prefixes() const { return prefixes_; }
  EngineStats& stats() { return stats_; }
  const EngineStats& stats() const { return stats_; }

 private:
  // A page of `sequence` that duplicates a cached one and is replaced by it after the step.
  struct Replacement {
    Sequence* sequence;
    size_t index;
    PageId cached;
  };
  void plan_decodes();
  void plan_drafts();
  void plan_prompts();
  void admit_waiting();
  bool can_admit(const Sequence& sequence) const;
  void plan_prompt(size_t index);
  bool adopt_cached_pages(Sequence& sequence);  // whether any were found
  int64_t grow_pages(size_t index, int64_t count);
  void grant(Sequence& sequence, int64_t count, bool adopts_pages = false);
  void cache_full_pages(Sequence& sequence, int64_t begin);
  void replace_duplicate_pages();
  PageId take_page();
  bool preempt_newer_than(size_t index);
  void preempt_newest();
  void release_pages(Sequence& sequence);
  PageId find_page(PageId parent, const Sequence& sequence, int64_t page_index) const;
  int64_t pages_for(int64_t num_tokens) const;
  int64_t num_available_pages() const;

  SchedulerOptions options_;
  PagePool pool_;
  PrefixCache prefixes_;
  std::vector<Sequence*> running_;  // by arrival; all arrived before those in waiting_
  std::deque<Sequence*> waiting_;   // by arrival
  std::vector<Chunk> plan_;
  std::vector<Replacement> replacements_;
  int64_t budget_ = 0;  // tokens left in the step that is being planned
  EngineStats stats_;
};

}  // namespace slimexx::rollout
