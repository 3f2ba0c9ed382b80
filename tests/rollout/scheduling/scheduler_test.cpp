// Checks the scheduler with a model of the memory it manages: each slot stores the exact token
// sequence of its keys and values. A page that is read before it is written, written twice, or
// found under a wrong prefix shows as a wrong value.
#include "rollout/scheduling/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "slimexx/base/philox.h"

namespace slimexx::rollout {
namespace {

uint64_t extend_hash(uint64_t hash, int32_t token) {
  return philox4x32({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32),
                     static_cast<uint32_t>(token), 1},
                    {11, 13})[0] |
         uint64_t{philox4x32({static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32),
                              static_cast<uint32_t>(token), 2},
                             {11, 13})[0]}
             << 32;
}

struct Workload {
  uint64_t seed = 0;
  SchedulerOptions options = {};
  int64_t max_sequence_tokens = 0;
  int num_requests = 40;
  bool aborts = false;
  bool short_prompts = false;  // long responses instead, which overflow the cache
  int submitted_at_once = 40;
  // As in the engine: a step is planned and computed before the previous one is recorded.
  bool overlaps = false;
  bool stops = false;  // some responses end at a stop token
};

class Simulation {
 public:
  explicit Simulation(const Workload& workload)
      : workload_(workload),
        random_(workload.seed, 99),
        scheduler_(workload.options),
        slots_(static_cast<size_t>(workload.options.num_pages * workload.options.page_tokens), 0) {}

  void run() {
    int step = 0;
    while (num_submitted_ < workload_.num_requests || !live_.empty()) {
      ASSERT_LT(++step, 40000) << "requests starve";
      submit_some();
      abort_sometimes();
      const std::vector<Chunk>& plan = scheduler_.plan_step();
      if (live_.empty()) continue;
      check_plan(plan);
      compute(plan);
      if (testing::Test::HasFatalFailure()) return;
      scheduler_.finish_step();
      Launched launched = sample(plan);
      if (workload_.overlaps) record_under_way();
      expect(launched);
      in_flight_ = std::move(launched);
      if (!workload_.overlaps || live_.empty()) record_under_way();
      check_pages();
      if (testing::Test::HasFatalFailure()) return;
    }
    EXPECT_EQ(scheduler_.pages().num_held(), 0);
    EXPECT_EQ(scheduler_.pages().num_idle(), scheduler_.prefixes().size());
    scheduler_.forget_prefixes();
    EXPECT_EQ(scheduler_.pages().num_free(), workload_.options.num_pages);
  }

  const EngineStats& stats() const { return scheduler_.stats(); }
  const std::vector<int64_t>& log() const { return log_; }
  const std::vector<int64_t>& finish_order() const { return finish_order_; }
  int num_stopped() const { return num_stopped_; }
  int num_stopped_while_waiting() const { return num_stopped_while_waiting_; }

 private:
  static constexpr int32_t kStopToken = 3;
  struct Launched {
    std::vector<Sequence*> sampled;
    std::vector<int32_t> tokens;
  };

  void submit_some() {
    for (int i = 0; i < workload_.submitted_at_once && num_submitted_ < workload_.num_requests;
         ++i) {
      auto sequence = std::make_unique<Sequence>();
      sequence->request.id = num_submitted_;
      sequence->arrival = static_cast<uint64_t>(num_submitted_++);
      const auto longest = static_cast<uint64_t>(workload_.max_sequence_tokens);
      // Few distinct prompts, some of them prefixes of others.
      const auto length =
          1 + random_.next_below(workload_.short_prompts ? (longest + 4) / 5 : longest - 1);
      const auto kind = static_cast<int32_t>(random_.next_below(3));
      for (uint64_t t = 0; t < length; ++t)
        sequence->tokens.push_back(t > 9 ? kind : static_cast<int32_t>(t % 2));
      const uint64_t room = longest - length;
      sequence->max_tokens = static_cast<int64_t>(length + 1 + random_.next_below(room));
      scheduler_.add(sequence.get());
      live_.emplace(sequence->request.id, std::move(sequence));
    }
  }

  void abort_sometimes() {
    if (!workload_.aborts || live_.empty() || random_.next_below(4) != 0) return;
    record_under_way();
    if (live_.empty()) return;
    auto victim = live_.begin();
    std::advance(victim, static_cast<long>(random_.next_below(live_.size())));
    scheduler_.remove(victim->second.get());
    live_.erase(victim);
  }

  void check_plan(const std::vector<Chunk>& plan) {
    int64_t num_tokens = 0;
    std::set<const Sequence*> seen;
    bool has_prompt = false;
    for (const Chunk& chunk : plan) {
      const Sequence& sequence = *chunk.sequence;
      ASSERT_TRUE(seen.insert(&sequence).second) << "two shares of one step";
      ASSERT_GT(chunk.count, 0);
      ASSERT_EQ(sequence.num_computed, chunk.begin + chunk.count);
      ASSERT_LE(sequence.num_computed, sequence.num_tokens());
      ASSERT_EQ(chunk.samples, sequence.num_computed == sequence.num_tokens());
      num_tokens += chunk.count;
      if (chunk.count > 1) has_prompt = true;
      ASSERT_FALSE(has_prompt && chunk.count == 1 && chunk.begin >= sequence.num_prompt_tokens() &&
                   sequence.num_preemptions == 0)
          << "a decode after a prompt";
      log_.insert(log_.end(), {sequence.request.id, chunk.begin, chunk.count});
    }
    ASSERT_LE(num_tokens, workload_.options.max_batch_tokens);
    ASSERT_LE(scheduler_.num_running(), workload_.options.max_running);
    ASSERT_TRUE(!plan.empty() || scheduler_.num_running() + scheduler_.num_waiting() == 0);
  }

  int32_t token_at(const Sequence& sequence, int64_t position) const {
    const int32_t token = sequence.tokens[static_cast<size_t>(position)];
    return token >= 0 ? token : in_flight_.tokens.at(static_cast<size_t>(~token));
  }

  size_t slot_of(const Sequence& sequence, int64_t position) const {
    const int64_t page_tokens = workload_.options.page_tokens;
    return static_cast<size_t>(sequence.pages.at(static_cast<size_t>(position / page_tokens)) *
                                   page_tokens +
                               position % page_tokens);
  }

  // One forward: all writes, then all reads.
  void compute(const std::vector<Chunk>& plan) {
    std::set<size_t> written;
    for (const Chunk& chunk : plan) {
      uint64_t hash = 1;
      for (int64_t p = 0; p < chunk.begin + chunk.count; ++p) {
        hash = extend_hash(hash, token_at(*chunk.sequence, p));
        if (p < chunk.begin) continue;
        const size_t slot = slot_of(*chunk.sequence, p);
        ASSERT_TRUE(written.insert(slot).second) << "slot " << slot << " is written twice";
        slots_[slot] = hash;
      }
    }
    for (const Chunk& chunk : plan) {
      uint64_t hash = 1;
      for (int64_t p = 0; p < chunk.begin + chunk.count; ++p) {
        hash = extend_hash(hash, token_at(*chunk.sequence, p));
        const size_t slot = slot_of(*chunk.sequence, p);
        // Attention may read the context while this step's keys are still being written.
        ASSERT_TRUE(chunk.adopts_pages || p >= chunk.begin || !written.contains(slot))
            << "request " << chunk.sequence->request.id << " position " << p;
        ASSERT_EQ(slots_[slot], hash) << "request " << chunk.sequence->request.id << " position "
                                      << p << " of " << chunk.begin + chunk.count;
      }
    }
  }

  Launched sample(const std::vector<Chunk>& plan) {
    Launched launched;
    for (const Chunk& chunk : plan) {
      if (!chunk.samples) continue;
      launched.sampled.push_back(chunk.sequence);
      const bool stops = workload_.stops && random_.next_below(12) == 0;
      launched.tokens.push_back(stops ? kStopToken : static_cast<int32_t>(random_.next_below(2)));
    }
    return launched;
  }

  // Handles the sampled tokens as the engine does.
  void expect(Launched& launched) {
    for (size_t row = 0; row < launched.sampled.size(); ++row) {
      Sequence*& sequence = launched.sampled[row];
      if (sequence->is_finished) {
        sequence = nullptr;
        continue;
      }
      sequence->expect_token(row);
      if (sequence->num_tokens() >= sequence->max_tokens) scheduler_.remove(sequence);
    }
    over_.clear();
  }

  void record_under_way() {
    const Launched launched = std::exchange(in_flight_, {});
    for (size_t row = 0; row < launched.sampled.size(); ++row) {
      Sequence* sequence = launched.sampled[row];
      if (sequence == nullptr) continue;
      sequence->learn_token(launched.tokens[row], 0);
      const bool stops = launched.tokens[row] == kStopToken;
      if (!stops && sequence->num_tokens() < sequence->max_tokens) {
        scheduler_.learned_token(sequence);
        continue;
      }
      if (stops && !sequence->is_removed) {
        ++num_stopped_;
        num_stopped_while_waiting_ += sequence->num_computed == 0;
      }
      if (!sequence->is_removed) scheduler_.remove(sequence);
      sequence->is_finished = true;
      finish_order_.push_back(sequence->request.id);
      over_.push_back(std::move(live_.extract(sequence->request.id).mapped()));
    }
  }

  void check_pages() {
    std::map<PageId, int32_t> holders;
    for (const auto& [id, sequence] : live_)
      for (const PageId page : sequence->pages) ++holders[page];
    const PagePool& pool = scheduler_.pages();
    for (PageId page = 0; page < pool.num_pages(); ++page)
      ASSERT_EQ(pool.num_holders(page), holders.contains(page) ? holders[page] : 0)
          << "page " << page;
    ASSERT_EQ(pool.num_held() + pool.num_idle() + pool.num_free(), pool.num_pages());
  }

  Workload workload_;
  PhiloxStream random_;
  Scheduler scheduler_;
  std::vector<uint64_t> slots_;
  std::map<int64_t, std::unique_ptr<Sequence>> live_;
  Launched in_flight_;
  std::vector<std::unique_ptr<Sequence>> over_;
  int num_stopped_ = 0, num_stopped_while_waiting_ = 0;
  std::vector<int64_t> log_, finish_order_;
  int num_submitted_ = 0;
};

Workload random_workload(uint64_t seed) {
  PhiloxStream random(seed, 5);
  Workload workload{.seed = seed};
  workload.max_sequence_tokens = static_cast<int64_t>(2 + random.next_below(50));
  const int64_t page_tokens = std::array<int64_t, 4>{1, 2, 4, 16}[random.next_below(4)];
  const int64_t tiniest = (workload.max_sequence_tokens + page_tokens - 1) / page_tokens;
  workload.options = {
      .page_tokens = page_tokens,
      .num_pages = tiniest * static_cast<int64_t>(1 + random.next_below(4)),
      .max_batch_tokens = std::array<int64_t, 4>{1, 5, 16, 200}[random.next_below(4)],
      .max_running = static_cast<int64_t>(1 + random.next_below(12)),
      .enable_prefix_cache = random.next_below(4) != 0};
  workload.aborts = random.next_below(3) == 0;
  workload.short_prompts = random.next_below(2) == 0;
  workload.submitted_at_once = random.next_below(2) == 0 ? 40 : 2;
  workload.overlaps = random.next_below(3) != 0;
  workload.stops = random.next_below(2) != 0;
  return workload;
}

TEST(Scheduler, PagesAlwaysHoldWhatTheirReadersExpect) {
  EngineStats total;
  int num_stopped = 0, num_stopped_while_waiting = 0;
  for (uint64_t seed = 1; seed <= 800; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Simulation simulation(random_workload(seed));
    simulation.run();
    if (HasFatalFailure()) return;
    total.preemptions += simulation.stats().preemptions;
    total.cached_tokens += simulation.stats().cached_tokens;
    total.partial_chunks += simulation.stats().partial_chunks;
    total.recomputed_tokens += simulation.stats().recomputed_tokens;
    num_stopped += simulation.num_stopped();
    num_stopped_while_waiting += simulation.num_stopped_while_waiting();
  }
  std::printf(
      "preemptions %ld, cached tokens %ld, partial chunks %ld, recomputed tokens %ld; %d stopped, "
      "%d of them preempted meanwhile\n",
      total.preemptions, total.cached_tokens, total.partial_chunks, total.recomputed_tokens,
      num_stopped, num_stopped_while_waiting);
  EXPECT_GT(total.preemptions, 1000);
  EXPECT_GT(total.cached_tokens, 10000);
  EXPECT_GT(total.partial_chunks, 1000);
  EXPECT_GT(total.recomputed_tokens, 1000);
  EXPECT_GT(num_stopped, 1000);
  EXPECT_GT(num_stopped_while_waiting, 5);
}

// Ends by length are known at launch. Without stops and shared pages (with overlap a page is found
// later), overlapped runs plan the same steps.
TEST(Scheduler, OverlappedStepsArePlannedAsOthers) {
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    Workload workload = random_workload(seed);
    workload.submitted_at_once = workload.num_requests;
    workload.aborts = workload.stops = workload.options.enable_prefix_cache = false;
    workload.overlaps = false;
    Simulation plain(workload);
    plain.run();
    workload.overlaps = true;
    Simulation overlapped(workload);
    overlapped.run();
    if (HasFatalFailure()) return;
    EXPECT_EQ(overlapped.log(), plain.log()) << "seed " << seed;
    EXPECT_EQ(overlapped.finish_order(), plain.finish_order()) << "seed " << seed;
  }
}

TEST(Scheduler, SameCallsSamePlans) {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    Simulation first(random_workload(seed)), second(random_workload(seed));
    first.run();
    second.run();
    EXPECT_EQ(first.log(), second.log()) << "seed " << seed;
    EXPECT_EQ(first.finish_order(), second.finish_order()) << "seed " << seed;
  }
}

TEST(Scheduler, TheTiniestCacheServesOneAfterAnother) {
  for (const bool prefix_cache : {true, false}) {
    Workload workload{.seed = 3, .max_sequence_tokens = 24, .num_requests = 30};
    workload.options = {.page_tokens = 4,
                        .num_pages = 6,
                        .max_batch_tokens = 64,
                        .max_running = 8,
                        .enable_prefix_cache = prefix_cache};
    Simulation simulation(workload);
    simulation.run();
    EXPECT_EQ(simulation.finish_order().size(), 30u);
    EXPECT_GT(simulation.stats().preemptions, 0);
    EXPECT_EQ(simulation.stats().peak_pages, 6);
  }
}

struct Samples {
  std::vector<std::unique_ptr<Sequence>> sequences;
  Samples(Scheduler& scheduler, int count, int64_t prompt_tokens) {
    for (int i = 0; i < count; ++i) {
      auto& sequence = sequences.emplace_back(std::make_unique<Sequence>());
      sequence->arrival = static_cast<uint64_t>(i);
      sequence->request.id = i;
      for (int64_t t = 0; t < prompt_tokens; ++t)
        sequence->tokens.push_back(static_cast<int32_t>(t));
      scheduler.add(sequence.get());
    }
  }
};

TEST(Scheduler, SamplesOfAPromptShareItsPagesWithinOneStep) {
  Scheduler scheduler(
      {.page_tokens = 4, .num_pages = 100, .max_batch_tokens = 100, .max_running = 8});
  Samples samples(scheduler, 8, 21);
  const std::vector<Chunk>& plan = scheduler.plan_step();
  ASSERT_EQ(plan.size(), 8u);
  EXPECT_EQ(plan[0].count, 21);
  for (size_t i = 1; i < 8; ++i) {
    EXPECT_EQ(plan[i].begin, 20) << i;  // five full pages are shared
    EXPECT_EQ(plan[i].count, 1) << i;
  }
  EXPECT_EQ(scheduler.pages().num_held(), 5 + 8);
  EXPECT_EQ(scheduler.stats().cached_tokens, 7 * 20);
}

TEST(Scheduler, TheLastTokenIsComputedEvenIfItsPageIsKnown) {
  Scheduler scheduler(
      {.page_tokens = 4, .num_pages = 100, .max_batch_tokens = 100, .max_running = 8});
  Samples samples(scheduler, 2, 8);
  const std::vector<Chunk>& plan = scheduler.plan_step();
  ASSERT_EQ(plan.size(), 2u);
  EXPECT_EQ(plan[1].begin, 4);
  EXPECT_EQ(plan[1].count, 4);
  EXPECT_TRUE(plan[1].samples);
  scheduler.finish_step();
  // The duplicate page was replaced by the first one.
  EXPECT_EQ(samples.sequences[0]->pages, samples.sequences[1]->pages);
  EXPECT_EQ(scheduler.pages().num_held(), 2);
}

TEST(Scheduler, ALongPromptIsSharedChunkByChunk) {
  Scheduler scheduler(
      {.page_tokens = 4, .num_pages = 100, .max_batch_tokens = 10, .max_running = 8});
  Samples samples(scheduler, 3, 42);
  int64_t computed = 0;
  for (int step = 0; step < 20; ++step) {
    for (const Chunk& chunk : scheduler.plan_step()) computed += chunk.count;
    scheduler.finish_step();
    bool is_done = true;
    for (const auto& sequence : samples.sequences) is_done &= sequence->num_pending() == 0;
    if (!is_done) continue;
    EXPECT_EQ(computed, 42 + 2 * 2);
    EXPECT_EQ(step, 4);
    return;
  }
  FAIL() << "not done, " << computed << " tokens computed";
}

// Request 1 generates the tokens that continue the prompt of request 2, so both fill equal pages,
// and request 2 also fills the next page in the same step.
TEST(Scheduler, ATwinPageIsGivenUpWithinALongerChunk) {
  Scheduler scheduler(
      {.page_tokens = 4, .num_pages = 100, .max_batch_tokens = 10, .max_running = 8});
  std::vector<std::unique_ptr<Sequence>> sequences;
  const auto submit = [&](int32_t first, int32_t length) {
    auto& sequence = sequences.emplace_back(std::make_unique<Sequence>());
    sequence->arrival = sequences.size();
    for (int32_t t = 0; t < length; ++t) sequence->tokens.push_back(first + t);
    scheduler.add(sequence.get());
  };
  submit(50, 5);
  submit(0, 3);
  submit(0, 14);
  ASSERT_EQ(scheduler.plan_step().size(), 3u);
  scheduler.finish_step();
  ASSERT_EQ(sequences[2]->num_computed, 2);
  for (const auto& [index, token] : {std::pair{0, 55}, {1, 3}}) {
    sequences[static_cast<size_t>(index)]->tokens.push_back(token);
    sequences[static_cast<size_t>(index)]->log_probs.push_back(0);
  }
  scheduler.plan_step();
  ASSERT_EQ(sequences[2]->num_computed, 10);
  EXPECT_NE(sequences[1]->pages[0], sequences[2]->pages[0]);
  scheduler.finish_step();
  EXPECT_EQ(sequences[1]->pages[0], sequences[2]->pages[0]);
  submit(0, 9);
  scheduler.plan_step();
  EXPECT_EQ(sequences[3]->cached_tokens, 8);
  scheduler.finish_step();
  while (!sequences.empty()) {
    scheduler.remove(sequences.back().get());
    sequences.pop_back();
  }
  EXPECT_EQ(scheduler.pages().num_idle(), scheduler.prefixes().size());
  scheduler.forget_prefixes();
  EXPECT_EQ(scheduler.pages().num_free(), 100);
}

TEST(Scheduler, NobodyOvertakesAWaitingRequest) {
  // The second prompt needs more pages than the first leaves; the third would fit but is newer.
  Scheduler scheduler(
      {.page_tokens = 4, .num_pages = 10, .max_batch_tokens = 100, .max_running = 8});
  std::vector<std::unique_ptr<Sequence>> sequences;
  for (const int64_t length : {20, 36, 4}) {
    auto& sequence = sequences.emplace_back(std::make_unique<Sequence>());
    sequence->arrival = sequences.size();
    sequence->tokens.assign(static_cast<size_t>(length), static_cast<int32_t>(sequences.size()));
    scheduler.add(sequence.get());
  }
  ASSERT_EQ(scheduler.plan_step().size(), 1u);
  scheduler.finish_step();
  EXPECT_EQ(scheduler.num_waiting(), 2);
  scheduler.remove(sequences[0].get());
  const std::vector<Chunk>& plan = scheduler.plan_step();
  ASSERT_EQ(plan.size(), 1u);
  EXPECT_EQ(plan[0].sequence, sequences[1].get());
}

}  // namespace
}  // namespace slimexx::rollout
