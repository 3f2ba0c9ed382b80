#include "rollout/scheduling/scheduler.h"

#include <algorithm>

#include "slimexx/base/check.h"

namespace slimexx::rollout {
Scheduler::Scheduler(const SchedulerOptions& options)
    : options_(options),
      pool_(options.num_pages),
      prefixes_(options.enable_prefix_cache ? options.num_pages : 0, options.page_tokens) {
  stats_.num_pages = options.num_pages;
  running_.reserve(static_cast<size_t>(options.max_running));
}

int64_t Scheduler::pages_for(int64_t num_tokens) const {
  return (num_tokens + options_.page_tokens - 1) / options_.page_tokens;
}

void Scheduler::add(Sequence* sequence) {
  SLX_CHECK(waiting_.empty() || waiting_.back()->arrival < sequence->arrival);
  waiting_.push_back(sequence);
}

const std::vector<Chunk>& Scheduler::plan_step() {
  plan_.clear();
  budget_ = options_.max_batch_tokens;
  plan_decodes();
  plan_prompts();
  admit_waiting();
  plan_drafts();
  SLX_CHECK(!plan_.empty() || (running_.empty() && waiting_.empty()),
            "{} running and {} waiting sequences cannot make progress", running_.size(),
            waiting_.size());
  if (!plan_.empty()) ++stats_.steps;
  stats_.max_batch_tokens = std::max(stats_.max_batch_tokens, options_.max_batch_tokens - budget_);
  stats_.max_running = std::max(stats_.max_running, num_running());
  stats_.peak_pages = std::max(stats_.peak_pages, pool_.num_held());
  return plan_;
}

void Scheduler::plan_decodes() {
  for (size_t i = 0; i < running_.size() && budget_ > 0;) {
    Sequence& sequence = *running_[i];
    if (sequence.num_pending() != 1) {
      ++i;
    } else if (grow_pages(i, 1) == 1) {
      grant(sequence, 1);
      ++i;
    } else {
      preempt_newest();  // this sequence: grow_pages already preempted all newer ones
    }
  }
}

void Scheduler::plan_drafts() {
  for (Sequence* sequence : running_) {
    if (!sequence->is_planned) sequence->forget_drafts();
    const auto has_pages_for = [&](int64_t num_tokens) {
      while (std::ssize(sequence->pages) < pages_for(num_tokens)) {
        const PageId page = pool_.take_free();
        if (page == kNoPage) return false;
        sequence->pages.push_back(page);
      }
      return true;
    };
    std::vector<TokenId>& drafts = sequence->drafts;
    size_t n = 0;
    for (; n < drafts.size() && budget_ > 0; ++n, --budget_) {
      const int64_t position = sequence->num_computed + static_cast<int64_t>(n);
      if (!has_pages_for(position + 1)) break;
      plan_.push_back({.sequence = sequence,
                       .begin = position,
                       .count = 1,
                       .samples = true,
                       .adopts_pages = true,
                       .draft = static_cast<int64_t>(n) + 1});
    }
    drafts.resize(n);
    stats_.draft_tokens += static_cast<int64_t>(n);
    if (n > 0) ++stats_.verifications;
    has_pages_for(sequence->wanted_tokens);
  }
}

bool Scheduler::only_decodes() const {
  return waiting_.empty() && std::ranges::all_of(running_, [](const Sequence* sequence) {
           return sequence->num_pending() == 1;
         });
}

void Scheduler::accepted_draft(Sequence* sequence) {
  ++stats_.accepted_tokens;
  ++sequence->num_accepted;
  ++sequence->num_computed;
  sequence->furthest_computed = std::max(sequence->furthest_computed, sequence->num_computed);
  if (!options_.enable_prefix_cache) return;
  cache_full_pages(*sequence, sequence->num_computed - 1);
  replace_duplicate_pages();
}

void Scheduler::plan_prompts() {
  for (size_t i = 0; i < running_.size() && budget_ > 0; ++i)
    if (!running_[i]->is_planned) plan_prompt(i);
}

void Scheduler::admit_waiting() {
  // A sequence that this step preempted is not admitted again: it would need all its pages back.
  while (budget_ > 0 && !waiting_.empty() && num_running() < options_.max_running &&
         can_admit(*waiting_.front())) {
    Sequence* sequence = waiting_.front();
    waiting_.pop_front();
    SLX_CHECK(running_.empty() || running_.back()->arrival < sequence->arrival);
    running_.push_back(sequence);
    if (sequence->num_preemptions == 0) stats_.prompt_tokens += sequence->num_tokens();
    plan_prompt(running_.size() - 1);
  }
}

// Free and idle pages, minus those that running prompts still need.
int64_t Scheduler::num_available_pages() const {
  int64_t available = pool_.num_free() + pool_.num_idle();
  for (const Sequence* running : running_)
    available -= std::max<int64_t>(
        0, pages_for(running->num_tokens()) - static_cast<int64_t>(running->pages.size()));
  return available;
}

bool Scheduler::can_admit(const Sequence& sequence) const {
  if (running_.empty()) return true;
  int64_t available = num_available_pages() - num_running();
  if (available <= 0) return false;
  int64_t missing = pages_for(sequence.num_tokens());
  PageId page = kNoPage;
  for (int64_t i = 0; (i + 1) * options_.page_tokens < sequence.num_tokens(); ++i) {
    page = find_page(page, sequence, i);
    if (page == kNoPage) break;
    --missing;
    if (pool_.is_idle(page)) --available;
  }
  return missing <= available;
}

bool Scheduler::has_room() const {
  if (num_running() + num_waiting() >= options_.max_running) return false;
  int64_t pages = num_available_pages() - num_running() - num_waiting();
  int64_t tokens = options_.max_batch_tokens;
  for (const Sequence* running : running_) tokens -= running->num_pending();
  for (const Sequence* waiting : waiting_) {
    tokens -= waiting->num_tokens();
    pages -= pages_for(waiting->num_tokens());
  }
  return pages > 0 && tokens > 0;
}

PageId Scheduler::find_page(PageId parent, const Sequence& sequence, int64_t page_index) const {
  if (!options_.enable_prefix_cache) return kNoPage;
  return prefixes_.find(parent, {sequence.tokens.data() + page_index * options_.page_tokens,
                                 static_cast<size_t>(options_.page_tokens)});
}

void Scheduler::plan_prompt(size_t index) {
  Sequence& sequence = *running_[index];
  const bool adopts = adopt_cached_pages(sequence);
  const int64_t count = grow_pages(index, std::min(budget_, sequence.num_pending()));
  if (count > 0) grant(sequence, count, adopts);
}

bool Scheduler::adopt_cached_pages(Sequence& sequence) {
  const int64_t page_tokens = options_.page_tokens, before = sequence.num_computed;
  while (sequence.num_computed % page_tokens == 0 &&
         sequence.num_computed + page_tokens < sequence.num_tokens()) {
    const PageId parent = sequence.pages.empty() ? kNoPage : sequence.pages.back();
    const PageId page = find_page(parent, sequence, sequence.num_computed / page_tokens);
    if (page == kNoPage) break;
    pool_.retain(page);
    sequence.pages.push_back(page);
    sequence.num_computed += page_tokens;
    const int64_t found =
        std::clamp<int64_t>(sequence.num_computed - sequence.furthest_computed, 0, page_tokens);
    sequence.furthest_computed += found;
    sequence.cached_tokens += found;
    stats_.cached_tokens += found;
  }
  return sequence.num_computed > before;
}

// Takes pages for the next `count` tokens of running_[index]; returns how many of these tokens have
// room.
int64_t Scheduler::grow_pages(size_t index, int64_t count) {
  Sequence& sequence = *running_[index];
  const auto room = [&] {
    return static_cast<int64_t>(sequence.pages.size()) * options_.page_tokens -
           sequence.num_computed;
  };
  while (room() < count) {
    const PageId page = take_page();
    if (page != kNoPage) {
      sequence.pages.push_back(page);
    } else if (!preempt_newer_than(index)) {
      break;
    }
  }
  return std::min(room(), count);
}

PageId Scheduler::take_page() {
  const PageId page = pool_.take_free();
  if (page != kNoPage) return page;
  const PageId oldest = pool_.oldest_idle();
  if (oldest == kNoPage) return kNoPage;
  prefixes_.erase(oldest);
  pool_.free_idle(oldest);
  return pool_.take_free();
}

void Scheduler::grant(Sequence& sequence, int64_t count, bool adopts_pages) {
  const int64_t begin = sequence.num_computed;
  sequence.num_computed += count;
  stats_.recomputed_tokens += std::clamp<int64_t>(sequence.furthest_computed - begin, 0, count);
  sequence.furthest_computed = std::max(sequence.furthest_computed, sequence.num_computed);
  sequence.is_planned = true;
  budget_ -= count;
  const bool samples = sequence.num_pending() == 0;
  if (!samples) ++stats_.partial_chunks;
  plan_.push_back({.sequence = &sequence,
                   .begin = begin,
                   .count = count,
                   .samples = samples,
                   .adopts_pages = adopts_pages});
  if (options_.enable_prefix_cache) cache_full_pages(sequence, begin);
}

void Scheduler::cache_full_pages(Sequence& sequence, int64_t begin) {
  const int64_t page_tokens = options_.page_tokens;
  const int64_t known = std::min(sequence.num_computed, sequence.num_known());
  const int64_t first = begin / page_tokens, last = known / page_tokens;
  PageId parent = first == 0 ? kNoPage : sequence.pages[static_cast<size_t>(first - 1)];
  for (int64_t i = first; i < last; ++i) {
    const PageId own = sequence.pages[static_cast<size_t>(i)];
    const PageId cached = find_page(parent, sequence, i);
    if (cached == kNoPage) {
      prefixes_.insert(
          own, parent,
          {sequence.tokens.data() + i * page_tokens, static_cast<size_t>(page_tokens)});
      parent = own;
    } else {
      // Another sequence already cached the same content. This step still writes and reads this
      // sequence's own page.
      pool_.retain(cached);
      replacements_.push_back({&sequence, static_cast<size_t>(i), cached});
      parent = cached;
    }
  }
}

void Scheduler::replace_duplicate_pages() {
  for (const Replacement& replacement : replacements_) {
    PageId& page = replacement.sequence->pages[replacement.index];
    pool_.release(page, false);
    page = replacement.cached;
  }
  replacements_.clear();
}

void Scheduler::finish_step() {
  replace_duplicate_pages();
  for (const Chunk& chunk : plan_) chunk.sequence->is_planned = false;
}

void Scheduler::learned_token(Sequence* sequence) {
  if (!options_.enable_prefix_cache || sequence->num_pending() > 0) return;
  // The step that computes this token's keys and values is also launched by now.
  cache_full_pages(*sequence, sequence->num_computed - 1);
  replace_duplicate_pages();
}

bool Scheduler::preempt_newer_than(size_t index) {
  if (index + 1 == running_.size()) return false;
  preempt_newest();
  return true;
}

void Scheduler::preempt_newest() {
  Sequence* sequence = running_.back();
  SLX_CHECK(!sequence->is_planned, "request {} is preempted in its own step", sequence->request.id);
  release_pages(*sequence);
  sequence->forget_drafts();
  sequence->num_computed = 0;
  ++sequence->num_preemptions;
  ++stats_.preemptions;
  running_.pop_back();
  waiting_.push_front(sequence);
}

void Scheduler::release_pages(Sequence& sequence) {
  for (size_t i = sequence.pages.size(); i-- > 0;) {
    const PageId page = sequence.pages[i];
    pool_.release(page, options_.enable_prefix_cache && prefixes_.contains(page));
  }
  sequence.pages.clear();
}

void Scheduler::remove(Sequence* sequence) {
  sequence->is_removed = true;
  release_pages(*sequence);
  if (std::erase(running_, sequence) + std::erase(waiting_, sequence) != 1)
    SLX_CHECK(false, "unknown request {}", sequence->request.id);
}

void Scheduler::forget_prefixes() {
  SLX_CHECK(running_.empty() && waiting_.empty(), "requests are in flight");
  for (PageId page; (page = pool_.oldest_idle()) != kNoPage;) {
    prefixes_.erase(page);
    pool_.free_idle(page);
  }
}

}  // namespace slimexx::rollout
