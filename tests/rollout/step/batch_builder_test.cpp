#include "rollout/step/batch_builder.h"
#include "cpu_context.h"
#include "slimexx/ops/sampling.h"

#include <gtest/gtest.h>

#include <memory>

namespace slimexx::rollout {
namespace {

std::vector<int32_t> values(const tensor::Tensor& tensor) {
  return {tensor.i32(), tensor.i32() + tensor.num_elements()};
}

std::unique_ptr<Sequence> make_sequence(std::vector<TokenId> tokens, size_t num_response,
                                        std::vector<PageId> pages, float temperature) {
  auto sequence = std::make_unique<Sequence>();
  sequence->tokens = std::move(tokens);
  sequence->log_probs.assign(num_response, 0.0f);
  sequence->pages = std::move(pages);
  sequence->request.sampling.temperature = temperature;
  return sequence;
}

class BatchBuilderTest : public testing::Test {
 protected:
  static constexpr BatchLimits limits_{
      .max_tokens = 16, .max_sequences = 4, .max_pages = 5, .page_tokens = 2};
  BatchBuilder builder_{tensor::Device{}, limits_};
};

TEST_F(BatchBuilderTest, LaysChunksOut) {
  const auto decode = make_sequence({10, 11, 12, 13}, 2, {7, 3}, 1.0f);
  const auto prompt = make_sequence({20, 21, 22, 23, 24, 25}, 0, {1, 4, 9}, 1.0f);
  const std::vector<Chunk> chunks{{decode.get(), 3, 1, true}, {prompt.get(), 1, 4, false}};
  const model::Batch& batch = builder_.build({}, chunks, {});
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{13, 21, 22, 23, 24}));
  EXPECT_EQ(values(batch.positions), (std::vector<int32_t>{3, 1, 2, 3, 4}));
  EXPECT_EQ(values(batch.slots), (std::vector<int32_t>{7, 3, 8, 9, 18}));
  const auto& layout = batch.attention;
  EXPECT_EQ(std::vector<int32_t>(layout.cu_seqlens.begin(), layout.cu_seqlens.end()),
            (std::vector<int32_t>{0, 1, 5}));
  EXPECT_EQ(std::vector<int32_t>(layout.context_lens.begin(), layout.context_lens.end()),
            (std::vector<int32_t>{3, 1}));
  EXPECT_EQ(layout.page_table.dim(1), 3);
  EXPECT_EQ(layout.page_table.i32()[0], 7);
  EXPECT_EQ(layout.page_table.i32()[1], 3);
  EXPECT_EQ(layout.page_table.i32()[3], 1);
  EXPECT_EQ(layout.page_table.i32()[5], 9);
}

// Attention has a kernel per query length, so sequences and sampled rows are sorted by length,
// whatever the order of the shares.
TEST_F(BatchBuilderTest, SharesComeByLength) {
  const auto prompt = make_sequence({20, 21, 22, 23, 24, 25}, 0, {1, 4, 9}, 1.0f),
             rest = make_sequence({30, 31}, 0, {2}, 1.0f),
             decode = make_sequence({10, 11, 12, 13}, 2, {7, 3}, 1.0f);
  const std::vector<Chunk> chunks{
      {prompt.get(), 2, 4, true}, {rest.get(), 0, 2, true}, {decode.get(), 3, 1, true}};
  const model::Batch& batch = builder_.build({}, chunks, {});
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{13, 30, 31, 22, 23, 24, 25}));
  EXPECT_EQ(std::vector<Sequence*>(builder_.sampled().begin(), builder_.sampled().end()),
            (std::vector<Sequence*>{decode.get(), rest.get(), prompt.get()}));
  EXPECT_EQ(values(builder_.group_samples(8)[0].rows), (std::vector<int32_t>{0, 2, 6}));
  EXPECT_EQ(batch.attention.page_table.i32()[0], 7);
  EXPECT_EQ(batch.attention.page_table.i32()[3], 2);
}

TEST_F(BatchBuilderTest, SamplesTheLastRowOfSharesThatEndTheirSequence) {
  const auto a = make_sequence({1, 2}, 1, {0}, 1.0f), b = make_sequence({1, 2}, 1, {1}, 0.5f),
             c = make_sequence({1, 2}, 1, {2}, 1.0f), d = make_sequence({1, 2, 3}, 0, {3, 4}, 0.5f);
  c->request.name = {.seed = 42, .group = (uint64_t{5} << 32) + 6, .sample = 7};
  c->request.sampling.top_k = -1;
  const std::vector<Chunk> chunks{
      {a.get(), 1, 1, true}, {b.get(), 1, 1, true}, {c.get(), 1, 1, true}, {d.get(), 0, 2, false}};
  builder_.build({}, chunks, {});
  const auto& groups = builder_.group_samples(8);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(values(groups[0].rows), (std::vector<int32_t>{0, 1, 2}));
  EXPECT_EQ(builder_.sampled()[1], b.get());
  const auto* rows = groups[0].parameters.data<ops::SamplingRow>();
  EXPECT_EQ(rows[0].temperature, 1.0f);
  EXPECT_EQ(rows[1].temperature, 0.5f);
  const ops::SamplingRow& row = rows[2];
  EXPECT_EQ(row.seed, 42u);
  EXPECT_EQ(row.top_k, 0);
  EXPECT_EQ(std::vector<uint32_t>(row.counter, row.counter + 4),
            (std::vector<uint32_t>{1, 7, 6, 5}));
  const auto& small = builder_.group_samples(2);
  ASSERT_EQ(small.size(), 2u);
  EXPECT_EQ(values(small[1].rows), std::vector<int32_t>{2});
}

TEST_F(BatchBuilderTest, FillsADecodeBatchUp) {
  const auto a = make_sequence({1, 2, 3}, 2, {4, 2}, 1.0f), b = make_sequence({5, 6}, 1, {1}, 0.5f);
  const std::vector<Chunk> chunks{{a.get(), 2, 1, true}, {b.get(), 1, 1, true}};
  const model::Batch& batch =
      builder_.build_decode({}, chunks, {}, {.num_sequences = 4, .max_key_len = 8});
  EXPECT_EQ(values(batch.tokens), (std::vector<int32_t>{3, 6, 0, 0}));
  EXPECT_EQ(values(batch.positions), (std::vector<int32_t>{2, 1, 0, 0}));
  EXPECT_EQ(values(batch.slots), (std::vector<int32_t>{4, 3, -1, -1}));
  EXPECT_EQ(values(batch.attention.device_cu_seqlens), (std::vector<int32_t>{0, 1, 2, 2, 2}));
  EXPECT_EQ(values(batch.attention.device_context_lens), (std::vector<int32_t>{2, 1, 0, 0}));
  EXPECT_EQ(batch.attention.page_table.dim(1), 5);  // the same for all
  EXPECT_EQ(batch.attention.page_table.i32()[5], 1);
  EXPECT_EQ(batch.attention.max_key_len, 8);
  ASSERT_EQ(builder_.sampled().size(), 2u);
  const auto& groups = builder_.group_samples(8);
  ASSERT_EQ(groups.size(), 1u);
  EXPECT_EQ(values(groups[0].rows), (std::vector<int32_t>{0, 1, 2, 3}));
}

// The next step is staged while one is in flight; the in-flight batch and its samples must not be
// overwritten.
TEST_F(BatchBuilderTest, TwoStepsStandBesideEachOther) {
  const auto a = make_sequence({1, 2, 3}, 2, {4, 2}, 1.0f), b = make_sequence({5, 6}, 1, {1}, 0.5f);
  const std::vector<Chunk> first{{a.get(), 2, 1, true}, {b.get(), 1, 1, true}};
  const tensor::Tensor tokens = builder_.build({}, first, {}).tokens;
  StepSamples& samples = builder_.await_samples({});
  const SamplingGroup group = builder_.group_samples(8).front();
  const size_t set = builder_.current_set();
  group.tokens.i32()[0] = 40, group.tokens.i32()[1] = 41;
  group.log_probs.f32()[0] = -1.5f, group.log_probs.f32()[1] = -2.5f;
  ops::copy_samples_to_host(cpu_context(), group.host_tokens, group.host_log_probs, group.tokens,
                            group.log_probs);

  b->expect_token(1);
  const std::vector<Chunk> second{{b.get(), 2, 1, true}};
  const model::Batch& next = builder_.build({}, second, {});
  EXPECT_NE(builder_.current_set(), set);
  EXPECT_EQ(values(next.tokens), std::vector<int32_t>{~1});
  ops::fill_sampled_tokens(cpu_context(), next.tokens, builder_.sampled_before());
  EXPECT_EQ(values(next.tokens), std::vector<int32_t>{41});
  const auto* row = builder_.group_samples(8)[0].parameters.data<ops::SamplingRow>();
  EXPECT_EQ(row->counter[0], 2u);  // one response token is known, one in flight
  EXPECT_EQ(values(tokens), (std::vector<int32_t>{3, 6}));
  EXPECT_EQ(samples.sampled, (std::vector<Sequence*>{a.get(), b.get()}));
  EXPECT_EQ(samples.tokens[1], 41);
  EXPECT_EQ(samples.log_probs[0], -1.5f);

  builder_.build({}, first, {});
  EXPECT_EQ(builder_.current_set(), set);
}

TEST_F(BatchBuilderTest, TheLargestBatchIsFull) {
  const LargestBatch largest = make_largest_batch({}, limits_, {});
  EXPECT_EQ(largest.batch.tokens.dim(0), 16);
  EXPECT_EQ(largest.batch.attention.page_table.dim(0), 4);
  EXPECT_EQ(largest.batch.attention.page_table.dim(1), 5);
  EXPECT_EQ(largest.batch.attention.cu_seqlens.back(), 16);
}

TEST_F(BatchBuilderTest, TakesWhatIsPlanned) {
  EXPECT_EQ(builder_.memory_bytes(), plan_batch_bytes(limits_));
}

}  // namespace
}  // namespace slimexx::rollout
