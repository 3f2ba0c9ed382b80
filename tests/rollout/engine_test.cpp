#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>

#include "model/flat_store.h"
#include "rollout/samples.h"
#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

class EngineTest : public testing::Test {
 protected:
  EngineTest() {
    options_.max_total_tokens = 2000;
    options_.max_sequence_tokens = 100;
  }
  Engine make_engine() {
    const TokenBytes bytes = [this](TokenId token) -> const std::string& {
      return token_text_[static_cast<size_t>(token)];
    };
    return Engine(tiny_.decoder, tiny_.weights, tiny_.device, options_, bytes, 0);
  }

  RandomModel tiny_{tiny_spec("qwen3"), {}, false};
  EngineOptions options_;
  std::vector<std::string> token_text_ = [] {
    std::vector<std::string> text;
    for (int i = 0; i < 61; ++i) text.push_back("<" + std::to_string(i) + ">");
    return text;
  }();
};

TEST_F(EngineTest, EndsAtLengthOfRequestAndOfSequence) {
  Engine engine = make_engine();
  const auto results =
      generate_all(engine, {make_request(5, {1, 2, 3}, 8), make_request(4, {1, 2, 3}, 1000),
                            make_request(9, std::vector<TokenId>(99, 7), 3)});
  EXPECT_EQ(results[0].id, 5);
  EXPECT_EQ(results[0].tokens.size(), 8u);
  EXPECT_EQ(results[1].tokens.size(), 97u);
  EXPECT_EQ(results[2].tokens.size(), 1u);
  for (const Completion& result : results) {
    EXPECT_EQ(result.finish, FinishReason::kLength);
    EXPECT_EQ(result.log_probs.size(), result.tokens.size());
  }
  EXPECT_EQ(engine.stats().generated_tokens, 8 + 97 + 1);
  EXPECT_EQ(engine.stats().prompt_tokens, 3 + 3 + 99);
  EXPECT_FALSE(engine.has_work());
}

TEST_F(EngineTest, StopsAtIdsAndStrings) {
  Engine engine = make_engine();
  const Completion whole = generate_all(engine, {make_request(0, {3, 1, 4}, 60)}).front();
  const size_t at = 10;  // stop after this token, or at an earlier equal one
  const size_t first =
      static_cast<size_t>(std::ranges::find(whole.tokens, whole.tokens[at]) - whole.tokens.begin());
  Request by_id = make_request(0, {3, 1, 4}, 60);
  by_id.sampling.stop_token_ids = {whole.tokens[at]};
  Request by_text = make_request(0, {3, 1, 4}, 60);
  // The stop string begins and ends inside tokens.
  const std::string text = token_text_[static_cast<size_t>(whole.tokens[at - 1])].substr(1) +
                           token_text_[static_cast<size_t>(whole.tokens[at])].substr(0, 2);
  by_text.sampling.stop = {"never", text};
  const Completion id_stopped = generate_all(engine, {by_id}).front();
  const Completion text_stopped = generate_all(engine, {by_text}).front();
  EXPECT_EQ(id_stopped.finish, FinishReason::kStop);
  EXPECT_EQ(id_stopped.tokens.size(), first + 1);
  EXPECT_EQ(text_stopped.finish, FinishReason::kStop);
  EXPECT_LE(text_stopped.tokens.size(), at + 1);
  EXPECT_TRUE(
      std::equal(text_stopped.tokens.begin(), text_stopped.tokens.end(), whole.tokens.begin()));
  std::string joined;
  for (const TokenId token : text_stopped.tokens) joined += token_text_[static_cast<size_t>(token)];
  EXPECT_NE(joined.find(text), std::string::npos) << text;
}

TEST_F(EngineTest, AStopAtTheLastTokenIsAStop) {
  Engine engine = make_engine();
  const Completion whole = generate_all(engine, {make_request(0, {8}, 1)}).front();
  Request request = make_request(0, {8}, 1);
  request.sampling.stop_token_ids = whole.tokens;
  EXPECT_EQ(generate_all(engine, {request}).front().finish, FinishReason::kStop);
}

TEST_F(EngineTest, AbortReturnsWhatThereIs) {
  options_.max_running_requests = 1;
  Engine engine = make_engine();
  engine.submit(make_request(7, {1, 2}, 50));
  engine.submit(make_request(3, {1, 2}, 50));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(engine.step().empty());
  engine.abort(7);
  engine.abort(3);
  engine.abort(99);
  EXPECT_TRUE(engine.has_work());
  const std::vector<Completion> aborted = engine.step();
  ASSERT_EQ(aborted.size(), 2u);
  EXPECT_EQ(aborted[0].id, 3);
  EXPECT_EQ(aborted[0].tokens.size(), 0u);
  EXPECT_EQ(aborted[1].id, 7);
  EXPECT_EQ(aborted[1].tokens.size(), 5u);
  EXPECT_EQ(aborted[1].log_probs.size(), 5u);
  EXPECT_EQ(aborted[1].finish, FinishReason::kAbort);
  EXPECT_FALSE(engine.has_work());
  EXPECT_TRUE(engine.step().empty());
  // The id is free again, and the same id draws the same tokens.
  const Completion again = generate_all(engine, {make_request(7, {1, 2}, 6)}).front();
  EXPECT_TRUE(std::equal(aborted[1].tokens.begin(), aborted[1].tokens.end(), again.tokens.begin()));
}

TEST_F(EngineTest, RandomAbortsLeaveTheOthersAlone) {
  options_.max_total_tokens = 120;
  options_.page_tokens = 4;
  std::vector<Request> requests = mixed_requests(10, 8, 61);
  std::erase_if(requests, [](const Request& r) { return r.prompt->size() > 50; });
  Engine undisturbed = make_engine();
  std::map<int64_t, Completion> expected;
  for (Completion& g : generate_all(undisturbed, requests)) expected[g.id] = std::move(g);
  Engine engine = make_engine();
  PhiloxStream random(4, 4);
  size_t next = 0;
  int num_aborted = 0;
  while (next < requests.size() || engine.has_work()) {
    if (next < requests.size() && random.next_below(3) == 0) engine.submit(requests[next++]);
    if (random.next_below(12) == 0)
      engine.abort(static_cast<int64_t>(random.next_below(requests.size())));
    for (const Completion& result : engine.step()) {
      if (result.finish != FinishReason::kAbort) {
        expect_same(result, expected[result.id], "with aborts");
        continue;
      }
      ++num_aborted;
      ASSERT_LE(result.tokens.size(), expected[result.id].tokens.size());
      EXPECT_TRUE(std::equal(result.tokens.begin(), result.tokens.end(),
                             expected[result.id].tokens.begin()));
    }
  }
  std::printf("%d of %zu aborted, %ld preemptions\n", num_aborted, requests.size(),
              engine.stats().preemptions);
  EXPECT_GT(num_aborted, 2);
  EXPECT_GT(engine.stats().preemptions, 0);
}

TEST_F(EngineTest, PromptsAreFoundAgainUntilTheWeightsChange) {
  Engine engine = make_engine();
  const std::vector<TokenId> prompt(40, 5);
  EXPECT_EQ(generate_all(engine, {make_request(0, prompt, 4)}).front().cached_tokens, 0);
  const Completion before = generate_all(engine, {make_request(0, prompt, 4)}).front();
  EXPECT_EQ(before.cached_tokens, 32);
  const tensor::Tensor flat = flat_weights(tiny_.store);
  for (int64_t i = 0; i < flat.num_elements(); ++i) flat.f32()[i] *= 1.1f;
  engine.on_weights_updated();
  const Completion after = generate_all(engine, {make_request(0, prompt, 4)}).front();
  EXPECT_EQ(after.cached_tokens, 0);
  EXPECT_NE(after.log_probs, before.log_probs);
  Engine fresh = make_engine();
  expect_same(after, generate_all(fresh, {make_request(0, prompt, 4)}).front(), "after update");
}

TEST_F(EngineTest, TakesNoMemoryOnceItStands) {
  const int64_t live_bytes = tensor::allocation_counters(tiny_.device).live_bytes;
  const EngineMemory plan =
      plan_engine_memory(tiny_.decoder, tiny_.weights, tiny_.device, options_, 0);
  EXPECT_EQ(tensor::allocation_counters(tiny_.device).live_bytes, live_bytes);
  Engine engine = make_engine();
  const int64_t cache_bytes = engine.lend_cache().size_bytes();
  EXPECT_EQ(engine.memory_bytes(), plan.workspace_bytes + cache_bytes);
  EXPECT_EQ(tensor::allocation_counters(tiny_.device).live_bytes - live_bytes,
            engine.memory_bytes());
  EXPECT_EQ(cache_bytes, 125 * plan.page_bytes);  // 2000 tokens
  EXPECT_EQ(plan.min_pages, 7);                   // 100 tokens
  const tensor::AllocationCounters before = tensor::allocation_counters(tiny_.device);
  std::vector<Request> requests = mixed_requests(6, 2, 61);
  generate_all(engine, requests);
  const tensor::AllocationCounters after = tensor::allocation_counters(tiny_.device);
  EXPECT_EQ(after.num_allocations, before.num_allocations);
  EXPECT_EQ(after.live_bytes, before.live_bytes);
}

TEST_F(EngineTest, RoomEndsWithTheBatch) {
  options_.max_running_requests = 3;
  Engine engine = make_engine();
  int64_t submitted = 0;
  while (engine.has_room()) engine.submit(make_request(submitted++, {1, 2, 3}, 5));
  EXPECT_EQ(submitted, 3);
  engine.step();
  EXPECT_EQ(engine.num_running(), 3);
  EXPECT_EQ(engine.num_waiting(), 0);
  while (engine.has_work()) engine.step();
  EXPECT_TRUE(engine.has_room());

  options_.max_running_requests = 50;
  options_.max_total_tokens = 100;
  Engine small = make_engine();
  for (submitted = 0; small.has_room(); ++submitted)
    small.submit(make_request(submitted, {1, 2, 3}, 5));
  EXPECT_GT(submitted, 1);
  EXPECT_LE(submitted, 6);
  small.step();
  EXPECT_EQ(small.num_waiting(), 0);
}

TEST_F(EngineTest, PaddedVocabularyIsNeverSampled) {
  Engine engine(tiny_.decoder, tiny_.weights, tiny_.device, options_, nullptr, 9);
  Request request = make_request(0, {3}, 90);
  request.sampling.temperature = 5.0f;
  const Completion completion = generate_all(engine, {request}).front();
  EXPECT_EQ(completion.tokens.size(), 90u);
  for (const TokenId token : completion.tokens) EXPECT_LT(token, 9);
}

void expect_refused(ErrorCode code, const std::string& part, const std::function<void()>& act) {
  try {
    act();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

TEST_F(EngineTest, RefusesWhatCannotBeServed) {
  Engine engine = make_engine();
  const auto refuse = [&](const std::string& part, const std::function<void(Request&)>& change) {
    Request request = make_request(1, {1, 2}, 4);
    change(request);
    expect_refused(ErrorCode::kRun, part, [&] { engine.submit(request); });
    EXPECT_FALSE(engine.has_work());
  };
  const auto prompt = [](std::vector<TokenId> tokens) {
    return std::make_shared<const std::vector<TokenId>>(std::move(tokens));
  };
  refuse("prompt is empty", [&](Request& r) { r.prompt = prompt({}); });
  refuse("prompt is empty", [&](Request& r) { r.prompt = nullptr; });
  refuse("leaves no room", [&](Request& r) { r.prompt = prompt(std::vector<TokenId>(100, 1)); });
  refuse("token 1 of the prompt is 61", [&](Request& r) { r.prompt = prompt({0, 61}); });
  refuse("outside the vocabulary", [&](Request& r) { r.prompt = prompt({-1}); });
  refuse("temperature", [](Request& r) { r.sampling.temperature = 0; });
  refuse("temperature", [](Request& r) { r.sampling.temperature = NAN; });
  refuse("top_p", [](Request& r) { r.sampling.top_p = 0; });
  refuse("top_k", [](Request& r) { r.sampling.top_k = -2; });
  refuse("min_p", [](Request& r) { r.sampling.min_p = 1.5f; });
  refuse("max_new_tokens", [](Request& r) { r.sampling.max_new_tokens = 0; });
  refuse("stop string", [](Request& r) { r.sampling.stop = {""}; });
  engine.submit(make_request(1, {1}, 2));
  expect_refused(ErrorCode::kRun, "already in flight",
                 [&] { engine.submit(make_request(1, {1}, 2)); });
  Engine textless(tiny_.decoder, tiny_.weights, tiny_.device, options_, nullptr, 0);
  Request with_stop = make_request(1, {1}, 2);
  with_stop.sampling.stop = {"x"};
  expect_refused(ErrorCode::kRun, "tokenizer", [&] { textless.submit(with_stop); });
}

TEST_F(EngineTest, RefusesOptionsThatCannotWork) {
  const auto refuse = [&](const std::string& part,
                          const std::function<void(EngineOptions&)>& change) {
    const EngineOptions kept = options_;
    change(options_);
    expect_refused(ErrorCode::kUsage, part, [&] { make_engine(); });
    options_ = kept;
  };
  refuse("holds 96 tokens", [](EngineOptions& o) { o.max_total_tokens = 96; });
  refuse("page_tokens", [](EngineOptions& o) { o.page_tokens = 0; });
  refuse("max_running_requests", [](EngineOptions& o) { o.max_running_requests = 0; });
  refuse("chunked_prefill_size", [](EngineOptions& o) { o.chunked_prefill_size = -4; });
  refuse("max_total_tokens", [](EngineOptions& o) { o.max_total_tokens = -1; });
  refuse("128 positions", [](EngineOptions& o) { o.max_sequence_tokens = 129; });
  refuse("no room for a response", [](EngineOptions& o) { o.max_sequence_tokens = 1; });
  refuse("KV cache holds", [](EngineOptions& o) { o.max_total_tokens = 0, o.kv_cache_gib = 1e-6; });
  refuse("kv_cache_gib", [](EngineOptions& o) { o.max_total_tokens = 0, o.kv_cache_gib = 0; });
  options_.max_total_tokens = 100;  // exactly one sequence
  Engine tiniest = make_engine();
  EXPECT_EQ(tiniest.stats().num_pages, 7);
  EXPECT_EQ(generate_all(tiniest, {make_request(0, {1}, 500)}).front().tokens.size(), 99u);
}

// A measurement, not a check: run with --gtest_also_run_disabled_tests.
TEST(EngineSpeed, DISABLED_OneMillionParameters) {
  const model::ModelSpec spec = model::random_spec("qwen3",
                                                   {.vocab_size = 270,
                                                    .hidden_size = 128,
                                                    .intermediate_size = 384,
                                                    .head_dim = 32,
                                                    .max_positions = 512,
                                                    .num_layers = 4},
                                                   0.05);
  const RandomModel tiny(spec, {}, false);
  EngineOptions options;
  options.max_total_tokens = 64 * 512;
  Engine engine(tiny.decoder, tiny.weights, tiny.device, options, nullptr, 0);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 64; ++i)
    requests.push_back(
        make_request(i, std::vector<TokenId>(100, static_cast<TokenId>(i / 8)), 200));
  const auto begin = std::chrono::steady_clock::now();
  generate_all(engine, requests);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  std::printf(
      "%ld parameters, %ld tokens generated, %ld prompt tokens (%ld shared): %.2f s, %.0f "
      "tokens/s\n",
      tiny.store.num_elements(), engine.stats().generated_tokens, engine.stats().prompt_tokens,
      engine.stats().cached_tokens, seconds.count(),
      static_cast<double>(engine.stats().generated_tokens) / seconds.count());
}

}  // namespace
}  // namespace slimexx::rollout
