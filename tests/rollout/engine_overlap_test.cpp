// Each step is launched before the previous one is recorded. Late stops, aborts in between and
// pages shared right after must give the results of a step-by-step run.
#include "rollout/engine_case.h"

#include <limits>

#include "slimexx/base/error.h"

namespace slimexx::rollout {
namespace {

class EngineOverlap : public EngineSuite {
 protected:
  // A request that stops at token `at` of `whole`, or at an earlier equal token.
  static Request stopped_at(Request request, const Completion& whole, size_t at) {
    request.sampling.stop_token_ids = {whole.tokens.at(at)};
    return request;
  }
  static int64_t length_to(const Completion& whole, size_t at) {
    return std::ranges::find(whole.tokens, whole.tokens.at(at)) - whole.tokens.begin() + 1;
  }
  static std::vector<TokenId> prompt_of(int64_t length, TokenId first = 3) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < length; ++i)
      tokens.push_back(static_cast<TokenId>((first + i * i) % 61));
    return tokens;
  }
  // The first `length` tokens of a response that ends only by length.
  static Completion cut(Completion whole, int64_t length, FinishReason finish) {
    whole.tokens.resize(static_cast<size_t>(length));
    whole.log_probs.resize(static_cast<size_t>(length));
    whole.finish = finish;
    return whole;
  }
};

TEST_P(EngineOverlap, AStopIsFoundWhileTheNextStepRuns) {
  const Request request = make_request(1, prompt_of(5), 40);
  const Completion whole = each_alone({request}).front();
  for (const size_t at : {0, 1, 7, 20, 39}) {
    const int64_t length = length_to(whole, at);
    Engine stopping = engine(roomy());
    stopping.submit(stopped_at(request, whole, at));
    std::vector<Completion> results;
    int64_t calls = 0;
    for (; stopping.has_work(); ++calls)
      for (Completion& result : stopping.step()) results.push_back(std::move(result));
    ASSERT_EQ(results.size(), 1u);
    expect_same(results[0], cut(whole, length, FinishReason::kStop), "stopped");
    const EngineStats& stats = stopping.stats();
    EXPECT_EQ(stats.generated_tokens, length);
    EXPECT_EQ(stats.dropped_tokens, length < 40);  // an end by length is known in advance
    EXPECT_EQ(stats.steps, length + (length < 40));
    EXPECT_EQ(calls, length + 1);
    EXPECT_EQ(stats.recomputed_tokens + stats.preemptions, 0);
    EXPECT_EQ(stopping.num_running() + stopping.num_waiting(), 0);
    stopping.on_weights_updated();
    EXPECT_EQ(stopping.lend_cache().size_bytes() > 0, true);
  }
}

TEST_P(EngineOverlap, OneStepsResultsComeWithTheNextCall) {
  Engine one = engine(roomy());
  one.submit(make_request(1, prompt_of(4), 1));
  EXPECT_TRUE(one.step().empty());
  EXPECT_TRUE(one.has_work());
  EXPECT_EQ(one.num_running(), 0);  // its last token is in flight
  EXPECT_EQ(one.stats().generated_tokens, 0);
  const std::vector<Completion> results = one.step();
  ASSERT_EQ(results.size(), 1u);
  EXPECT_EQ(results[0].tokens.size(), 1u);
  EXPECT_FALSE(one.has_work());
  EXPECT_EQ(one.stats().steps, 1);
}

// Many requests with stops at once; the statistics count exactly the returned tokens.
TEST_P(EngineOverlap, StopsAmongOthers) {
  std::vector<Request> requests = mixed_requests(9, 5, 61);
  for (Request& request : requests) {
    request.sampling.stop_token_ids = {11, 12};
    request.sampling.max_new_tokens = 60;
  }
  // Two requests that start together, in a cache too small for both to finish.
  for (const int64_t id : {1001, 1000})
    requests.insert(requests.begin(), make_request(id, prompt_of(17), max_sequence()));
  const std::vector<Completion> alone = each_alone(requests);
  for (const bool tight : {false, true}) {
    EngineOptions options = roomy();
    if (tight) options.max_total_tokens = max_sequence();
    options.enable_prefix_cache = !tight;
    options.page_tokens = smallest_page();
    Engine together = engine(options);
    const std::vector<Completion> results = generate_all(together, requests);
    int64_t sum = 0, stops = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      expect_same(results[i], alone[i], "with stops");
      sum += static_cast<int64_t>(results[i].tokens.size());
      stops += results[i].finish == FinishReason::kStop;
    }
    EXPECT_EQ(together.stats().generated_tokens, sum);
    EXPECT_GT(together.stats().dropped_tokens, 5);
    EXPECT_LE(together.stats().dropped_tokens, stops);
    EXPECT_EQ(together.stats().preemptions > 0, tight);
  }
}

// The in-flight step also computes the stop token's keys and may fill a page with them. Later
// requests may find only pages that were computed before, for any position of the stop in its page.
TEST_P(EngineOverlap, WhatIsFoundAfterAStop) {
  EngineOptions options = roomy();
  options.page_tokens = std::max<int64_t>(smallest_page(), 4);
  const int64_t page = options.page_tokens;
  Engine first = engine(options);
  int full_pages = 0, stops = 0;
  for (int64_t id = 1; id <= 6; ++id) {
    const Request request = make_request(id, prompt_of(page + 1), 2 * page + 2);
    const Completion whole = each_alone({request}).front();
    for (size_t at = 0; at + 1 < whole.tokens.size(); ++at) {
      const int64_t computed = page + 1 + static_cast<int64_t>(at);  // not the stop token
      const int64_t rest = (computed + 1) % page;
      if ((rest > 1 && rest != page - 1) || length_to(whole, at) != static_cast<int64_t>(at) + 1)
        continue;
      ++stops;
      full_pages += rest == 0;
      first.on_weights_updated();
      const Completion stopped = generate_all(first, {stopped_at(request, whole, at)}).front();
      std::vector<TokenId> longer = *request.prompt;
      longer.insert(longer.end(), stopped.tokens.begin(), stopped.tokens.end());
      longer.insert(longer.end(), {1, 2, 3});
      const Request next = make_request(100, longer, 5);
      const Completion continued = generate_all(first, {next}).front();
      EXPECT_EQ(continued.cached_tokens, computed / page * page) << "stop at " << at;
      expect_same(continued, each_alone({next}).front(), "continued");
    }
  }
  EXPECT_GT(full_pages, 0);
  EXPECT_GT(stops, 5);
}

// Other requests start with the response so far as their prompt, from one step to the next.
TEST_P(EngineOverlap, ResponsesAreSharedAsTheyGrow) {
  EngineOptions options = roomy();
  options.page_tokens = smallest_page();
  const int64_t page = options.page_tokens;
  const Request request = make_request(1, prompt_of(page), 50);
  const Completion whole = each_alone({request}).front();
  std::vector<Request> followers;
  for (int64_t known = 1; known < 40; known += 3) {
    std::vector<TokenId> prompt = *request.prompt;
    prompt.insert(prompt.end(), whole.tokens.begin(), whole.tokens.begin() + known);
    prompt.push_back(60);
    followers.push_back(make_request(100 + known, prompt, 6));
  }
  const std::vector<Completion> alone = each_alone(followers);
  Engine shared = engine(options);
  shared.submit(request);
  std::map<int64_t, Completion> results;
  size_t next = 0;
  for (int64_t calls = 1; shared.has_work(); ++calls) {
    for (Completion& result : shared.step()) results[result.id] = std::move(result);
    // After `calls` steps, calls - 1 tokens are known.
    while (next < followers.size() && followers[next].id - 100 <= calls - 1)
      shared.submit(followers[next++]);
  }
  ASSERT_EQ(results.size(), followers.size() + 1);
  expect_same(results[1], whole, "the one that is followed");
  for (size_t i = 0; i < followers.size(); ++i) {
    expect_same(results[followers[i].id], alone[i], "a follower");
    const int64_t known = followers[i].id - 100;
    EXPECT_GE(results[followers[i].id].cached_tokens, (page + known - 1) / page * page) << known;
  }
}

TEST_P(EngineOverlap, AbortTakesWhatIsUnderWay) {
  const std::vector<Request> requests{make_request(1, prompt_of(5), 40),
                                      make_request(2, prompt_of(9, 7), 40),
                                      make_request(3, prompt_of(3, 5), 3)};
  const std::vector<Completion> whole = each_alone(requests);
  for (const int64_t calls : {1, 2, 3, 10}) {
    Engine aborted = engine(roomy());
    for (const Request& request : requests) aborted.submit(request);
    std::map<int64_t, Completion> results;
    const auto step = [&] {
      for (Completion& result : aborted.step()) results[result.id] = std::move(result);
    };
    for (int64_t i = 0; i < calls; ++i) step();
    aborted.abort(1);
    aborted.abort(3);
    EXPECT_EQ(aborted.stats().generated_tokens, 2 * calls + std::min<int64_t>(calls, 3));
    aborted.submit(make_request(1, prompt_of(5), 2));  // the id is free again
    while (aborted.has_work()) {
      step();
      if (results.contains(1) && results[1].finish == FinishReason::kAbort) {
        expect_same(results[1], cut(whole[0], calls, FinishReason::kAbort), "aborted");
        results.erase(1);
      }
    }
    expect_same(results[1], cut(whole[0], 2, FinishReason::kLength), "the id's next request");
    expect_same(results[2], whole[1], "not aborted");
    // The last token of the short request was in flight, so the request finished normally.
    expect_same(results[3], calls < 3 ? cut(whole[2], calls, FinishReason::kAbort) : whole[2],
                "the short one");
    EXPECT_EQ(aborted.stats().dropped_tokens, 0);
  }
}

TEST_P(EngineOverlap, AfterAbortAllNothingIsUnderWay) {
  Engine aborted = engine(roomy());
  std::vector<Request> requests = mixed_requests(4, 5, 61);
  for (const Request& request : requests) aborted.submit(request);
  for (int i = 0; i < 4; ++i) aborted.step();
  aborted.abort_all();
  aborted.on_weights_updated();
  aborted.lend_cache();
  EXPECT_TRUE(aborted.has_work());  // its result is still to be returned
  EXPECT_FALSE(aborted.step().empty());
  EXPECT_FALSE(aborted.has_work());
  const std::vector<Completion> alone = each_alone(requests),
                                again = generate_all(aborted, requests);
  for (size_t i = 0; i < again.size(); ++i) expect_same(again[i], alone[i], "after an abort");
}

// The step after a failed one is launched already; it reads token 0 as its input.
TEST_P(EngineOverlap, LogitsThatAreNotNumbersAreAnError) {
  const model::ParameterInfo& norm =
      *std::ranges::find(model_->store.infos(), "final_norm.weight", &model::ParameterInfo::name);
  std::vector<float> weight = model_->weight_values(norm);
  Engine broken = engine(roomy());
  broken.submit(make_request(1, prompt_of(5), 40));
  broken.submit(make_request(2, prompt_of(70, 7), 40));
  for (int i = 0; i < 3; ++i) broken.step();
  weight[0] = std::numeric_limits<float>::quiet_NaN();
  model_->store.write_weights(norm, 0, weight.data(), norm.num_elements());
  broken.step();  // launches the step that fails
  try {
    broken.step();
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kRun);
    EXPECT_NE(std::string(error.what()).find("NaN"), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(Families, EngineOverlap, testing::ValuesIn(engine_cases()), case_name);

}  // namespace
}  // namespace slimexx::rollout
