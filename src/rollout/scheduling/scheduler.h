// Decides, step by step, which tokens of which sequences one forward computes and which pages hold
// them. Policy:
//   1. a step has a budget of tokens; sequences with one pending token (decode) come first, then
//      the running prompts, then waiting requests, each by arrival; a prompt takes what budget is
//      left and goes on in the next step
//   2. a full page of tokens that any sequence has computed, or computes in this very step, is
//      shared: a forward writes a layer's keys and values before its attention reads them. The last
//      token is always computed, since its logits are wanted
//   3. a waiting request starts when pages for all its tokens are there, with one page to spare for
//      each running sequence; strictly by arrival
//   4. when pages run out, the newest running sequence is preempted: it gives up its pages, waits
//      at the head, and is computed again from its tokens
//   5. drafts, guesses of what follows a sequence's last token, have shares of their own behind all
//      others, in pages that are free; their keys and values count when they are accepted
//   6. the newest token of a sequence may be unknown while the step that samples it is under way:
//      its place is planned all the same, and a page that it fills is shared once it is known
// Hence at any time decodes are older than running prompts and those older than waiting requests;
// who is preempted has no share of the step yet. The oldest sequence always gets on, because it may
// preempt all others and the cache holds one sequence of the greatest length. A pure function of
// the calls.
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

// A share of a step: tokens [begin, begin + count) of a sequence.
struct Chunk {
  Sequence* sequence = nullptr;
  int64_t begin = 0, count = 0;
  bool samples = false;       // it ends with the last token there is: the next one is sampled
  bool adopts_pages = false;  // tokens before `begin` that another share of the step may compute
  // 0, or the share is the draft of this number (from 1), behind the shares of those before it.
  int64_t draft = 0;
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options);

  // Sequences are the caller's, must stay until removed, and come by ascending arrival.
  void add(Sequence* sequence);
  // The shares of the next step; empty if there is no sequence. Valid until the next call. The
  // caller launches it, then calls finish_step(). Before the next plan each sequence that is
  // sampled has its token appended (known or expected) or is removed. Steps are computed in the
  // order of their plans: pages that are given up may be written by the next one.
  const std::vector<Chunk>& plan_step();
  void finish_step();
  // Whether all that runs has one pending token and nothing waits: then drafts may be planned.
  bool only_decodes() const;
  const std::vector<Sequence*>& running() const { return running_; }
  // The sequence's next draft was its next token, and is one of its tokens now.
  void accepted_draft(Sequence* sequence);
  // An expected token has become known, and more follow it.
  void learned_token(Sequence* sequence);
  // Also while the step that samples its last token is under way.
  void remove(Sequence* sequence);
  // Forgets every cached prefix; only while no sequence is there.
  void forget_prefixes();

  int64_t num_waiting() const { return static_cast<int64_t>(waiting_.size()); }
  int64_t num_running() const { return static_cast<int64_t>(running_.size()); }
  // Whether one more request would get a share of the next step, as far as can be said without it.
  bool has_room() const;
  const PagePool& pages() const { return pool_; }
  const PrefixCache& prefixes() const { return prefixes_; }
  EngineStats& stats() { return stats_; }
  const EngineStats& stats() const { return stats_; }

 private:
  // A page of `sequence` that duplicates a cached one, to be given up for it after the step.
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
  bool adopt_cached_pages(Sequence& sequence);  // whether there were any
  int64_t grow_pages(size_t index, int64_t count);
  void grant(Sequence& sequence, int64_t count, bool adopts_pages = false);
  void cache_full_pages(Sequence& sequence, int64_t begin);
  void give_up_twins();
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
  std::vector<Sequence*> running_;  // by arrival, all before
  std::deque<Sequence*> waiting_;   // these, by arrival
  std::vector<Chunk> plan_;
  std::vector<Replacement> replacements_;
  int64_t budget_ = 0;  // tokens left in the step being planned
  EngineStats stats_;
};

}  // namespace slimexx::rollout
