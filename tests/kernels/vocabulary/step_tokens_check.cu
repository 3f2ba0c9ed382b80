// Checks of step_tokens.h and of split rows: the copies of sampled tokens to the next step and to
// the host, the rows of draft passes, and the log-normalisers of rows that are split over leaves.
//
//   step_tokens_check [small | tiny]      for compute-sanitizer: check_size.h
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "slimexx/kernels/step_tokens.h"
#include "slimexx/kernels/vocabulary.h"
#include "tests/kernels/check_size.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {
namespace {

using Ints = std::vector<int32_t>;

Ints random_ints(int64_t count, int32_t from, int32_t to) {
  std::mt19937_64 engine(++current_seed);
  Ints values(static_cast<size_t>(count));
  for (int32_t& value : values)
    value = from + static_cast<int32_t>(engine() % static_cast<uint64_t>(to - from));
  return values;
}

// Ids below 0 refer to sampled tokens; some of these are -1, because nothing could be sampled.
void check_resolve(int64_t count) {
  current_case = "fill_sampled_tokens of " + std::to_string(count);
  const Ints sampled = random_ints(count + 1, -1, 5);
  Ints expected = random_ints(count, -static_cast<int32_t>(count) - 1, 1000);
  const Array<int32_t> tokens(expected), from(sampled);
  expect_status("fill_sampled_tokens",
                fill_sampled_tokens(tokens.data(), count, from.data(), nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  for (int32_t& token : expected)
    if (token < 0) token = std::max(0, sampled[~token]);
  expect_bits("tokens", tokens.get(), expected, 1);
}

void check_hand_out(int64_t count) {
  current_case = "copy_samples_to_host of " + std::to_string(count);
  const Ints expected = random_ints(count, -1, 100000);
  const std::vector<float> log_probs = random_floats(count);
  const Array<int32_t> tokens(expected);
  const FloatArray values(log_probs);
  int32_t* host_tokens = nullptr;
  float* host_values = nullptr;
  SLX_CUDA(cudaMallocHost(&host_tokens, static_cast<size_t>(count) * 4));
  SLX_CUDA(cudaMallocHost(&host_values, static_cast<size_t>(count) * 4));
  expect_status(
      "copy_samples_to_host",
      copy_samples_to_host(host_tokens, host_values, tokens.data(), values.data(), count, nullptr),
      cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("tokens", Ints(host_tokens, host_tokens + count), expected, 1);
  expect_bits("log_probs", std::vector<float>(host_values, host_values + count), log_probs, 1);
  SLX_CUDA(cudaFreeHost(host_tokens));
  SLX_CUDA(cudaFreeHost(host_values));
}

std::vector<uint8_t> bytes_of(const std::vector<SamplingParameters>& parameters) {
  std::vector<uint8_t> bytes(parameters.size() * sizeof(SamplingParameters));
  if (!bytes.empty()) std::memcpy(bytes.data(), parameters.data(), bytes.size());
  return bytes;
}

// The rows of a draft pass, with all pointers to the host or all to the device.
struct DraftCase {
  static constexpr int64_t kPages = 6, kPageTokens = 16;
  int64_t count, rows;  // sequences in the next pass; rows of the pass before
  bool checks;          // the pass before checks drafts
  Ints positions, guessed, tokens, sampled, first_drafts, num_drafts, page_table, held;
  std::vector<SamplingParameters> parameters;

  DraftCase(int64_t sequences, bool checks_drafts)
      : count(sequences), rows(sequences), checks(checks_drafts) {
    num_drafts = random_ints(count, 0, 5);
    for (const int32_t drafts : num_drafts) {
      first_drafts.push_back(static_cast<int32_t>(rows));
      if (checks) rows += drafts;
    }
    positions = random_ints(rows, 0, kPages * kPageTokens);
    guessed = random_ints(rows, -1, 3);
    tokens = random_ints(rows, 0, 2);  // about half of the drafts are right
    sampled = random_ints(rows, 0, 2);
    page_table = random_ints(count * kPages, 0, 1000);
    held = random_ints(count, 1, kPages * kPageTokens + 1);
    parameters.resize(static_cast<size_t>(rows));
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].seed = i * 77;
      parameters[i].counter[0] = static_cast<uint32_t>(i);
    }
  }
};

struct NextPass {
  Ints tokens, positions, slots, context_lens, from_rows;
  std::vector<SamplingParameters> parameters;
  explicit NextPass(int64_t count)
      : tokens(count),
        positions(count),
        slots(count),
        context_lens(count),
        from_rows(count),
        parameters(static_cast<size_t>(count)) {}
};

NextPass advance_on_host(const DraftCase& c) {
  NextPass next(c.count);
  DraftRows rows;
  rows.positions = c.positions.data(), rows.guessed = c.guessed.data();
  rows.parameters = c.parameters.data();
  if (c.checks) {
    rows.tokens = c.tokens.data(), rows.sampled = c.sampled.data();
    rows.first_drafts = c.first_drafts.data(), rows.num_drafts = c.num_drafts.data();
  }
  rows.page_table = c.page_table.data(), rows.page_table_stride = DraftCase::kPages;
  rows.page_tokens = DraftCase::kPageTokens, rows.held_tokens = c.held.data();
  rows.next_tokens = next.tokens.data(), rows.next_positions = next.positions.data();
  rows.next_slots = next.slots.data(), rows.next_context_lens = next.context_lens.data();
  rows.from_rows = next.from_rows.data(), rows.next_parameters = next.parameters.data();
  rows.count = c.count;
  for (int32_t row = 0; row < c.count; ++row) advance_draft_row(rows, row);
  return next;
}

void check_drafts(int64_t sequences, bool checks_drafts) {
  current_case = "advance_drafts of " + std::to_string(sequences) +
                 (checks_drafts ? " after drafts that are checked" : "");
  const DraftCase c(sequences, checks_drafts);
  const NextPass expected = advance_on_host(c);
  const Array<int32_t> positions(c.positions), guessed(c.guessed), tokens(c.tokens),
      sampled(c.sampled), first_drafts(c.first_drafts), num_drafts(c.num_drafts),
      page_table(c.page_table), held(c.held), next_tokens(c.count), next_positions(c.count),
      slots(c.count), context_lens(c.count), from_rows(c.count);
  const Array<uint8_t> parameters(bytes_of(c.parameters)),
      next_parameters(c.count * static_cast<int64_t>(sizeof(SamplingParameters)));
  DraftRows rows;
  rows.positions = positions.data(), rows.guessed = guessed.data();
  rows.parameters = reinterpret_cast<const SamplingParameters*>(parameters.data());
  if (c.checks) {
    rows.tokens = tokens.data(), rows.sampled = sampled.data();
    rows.first_drafts = first_drafts.data(), rows.num_drafts = num_drafts.data();
  }
  rows.page_table = page_table.data(), rows.page_table_stride = DraftCase::kPages;
  rows.page_tokens = DraftCase::kPageTokens, rows.held_tokens = held.data();
  rows.next_tokens = next_tokens.data(), rows.next_positions = next_positions.data();
  rows.next_slots = slots.data(), rows.next_context_lens = context_lens.data();
  rows.from_rows = from_rows.data();
  rows.next_parameters = reinterpret_cast<SamplingParameters*>(next_parameters.data());
  rows.count = c.count;
  expect_status("advance_drafts", advance_drafts(rows, nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  expect_bits("tokens", next_tokens.get(), expected.tokens, 1);
  expect_bits("positions", next_positions.get(), expected.positions, 1);
  expect_bits("slots", slots.get(), expected.slots, 1);
  expect_bits("context_lens", context_lens.get(), expected.context_lens, 1);
  expect_bits("from_rows", from_rows.get(), expected.from_rows, 1);
  const std::vector<uint8_t> bytes = next_parameters.get(), want = bytes_of(expected.parameters);
  expect_bits("parameters by bytes", Ints(bytes.begin(), bytes.end()),
              Ints(want.begin(), want.end()), sizeof(SamplingParameters));
}

// Leaves of columns; one leaf of a row may contain only -inf.
void check_merge_lse(int64_t count, int64_t rows) {
  current_case =
      "merge_lse of " + std::to_string(count) + " leaves, " + std::to_string(rows) + " rows";
  std::vector<float> leaves = random_floats(count * rows, 5.0f);
  if (count > 1) leaves[0] = -INFINITY;
  const FloatArray device(leaves), lse(rows), again(rows), alone(1);
  std::vector<Exact> expected;
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += std::exp(double{leaves[i * rows + r]});
    expected.push_back({std::log(sum), 10.0});
  }
  for (const FloatArray* to : {&lse, &again})
    expect_status("merge_lse", merge_lse(to->data(), device.data(), count, rows, nullptr),
                  cudaSuccess);
  std::vector<float> last;
  for (int64_t i = 0; i < count; ++i) last.push_back(leaves[i * rows + rows - 1]);
  const FloatArray own(last);
  expect_status("merge_lse", merge_lse(alone.data(), own.data(), count, 1, nullptr), cudaSuccess);
  SLX_CUDA(cudaDeviceSynchronize());
  expect_close("lse", lse.get(), expected, 1);
  expect_bits("lse again", again.get(), lse.get(), 1);
  expect_bits("a row alone", alone.get(), take_rows(lse.get(), rows - 1, 1, 1), 1);
}

int run(CheckSize size) {
  std::vector<int64_t> counts = {1, 31, 257};
  if (size == CheckSize::kAll) counts.push_back(5000);
  for (const int64_t count : counts) {
    check_resolve(count);
    check_hand_out(count);
    for (const bool checks_drafts : {false, true}) check_drafts(count, checks_drafts);
    for (const int64_t leaves : {1, 2, 8}) check_merge_lse(leaves, count);
  }
  return finish_checks("step_tokens_check");
}

}  // namespace
}  // namespace slimexx::kernels::testing

int main(int argc, char** argv) {
  using namespace slimexx::kernels::testing;
  return run(read_check_size(argc, argv));
}
