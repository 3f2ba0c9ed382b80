#include "train/memory/largest_microbatches.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "slimexx/dist/ranges.h"
#include "slimexx/model/context_shards.h"

namespace slimexx::train {
namespace {

using Lengths = std::vector<int64_t>;

Lengths equal_lengths(int64_t num_tokens, int64_t count, int64_t longest) {
  Lengths lengths;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t share = num_tokens * (i + 1) / count - num_tokens * i / count;
    lengths.push_back(std::clamp<int64_t>(share, 2, longest));
  }
  return lengths;
}

// Samples of the longest length, and one with the rest.
Lengths longest_lengths(int64_t num_tokens, int64_t most, int64_t longest) {
  Lengths lengths;
  for (int64_t left = num_tokens; left >= 2 && std::ssize(lengths) < most; left -= longest)
    lengths.push_back(std::min(left, longest));
  return lengths;
}

// One long sample and as many short ones as possible: the largest for tables with a row per sample
// and the longest sample's width.
Lengths one_long_length(int64_t num_tokens, int64_t most, int64_t longest) {
  const int64_t first = std::min(longest, std::max(num_tokens / 2, num_tokens - 2 * (most - 1)));
  const int64_t left = num_tokens - first;
  Lengths lengths = equal_lengths(left, std::min(most - 1, left / 2), longest);
  lengths.insert(lengths.begin(), first);
  return lengths;
}

// Upper bound on the tokens of a cp rank beyond its even share.
struct UnevenShares {
  double of_sample = 0;  // tokens per sample
  double of_token = 0;   // per token, if all samples are short
};
UnevenShares find_uneven_shares(int cp_size) {
  UnevenShares most;
  for (int64_t length = 2; length < 2 + 2 * cp_size; ++length)
    for (int rank = 0; rank < cp_size; ++rank) {
      int64_t own = 0;
      for (const dist::Range& chunk : model::context_chunks(length, cp_size, rank))
        own += chunk.size();
      const auto size = static_cast<double>(length);
      const double more = static_cast<double>(own) - size / cp_size;
      most.of_sample = std::max(most.of_sample, more);
      most.of_token = std::max(most.of_token, more / size);
    }
  return most;
}

// Changes the lengths so that all chunks are equal, and every cp rank gets as many tokens as uneven
// chunks can give to one rank. Merges very short samples.
Lengths in_whole_chunks(const Lengths& lengths, int cp_size) {
  int64_t num_tokens = 0;
  for (const int64_t length : lengths) num_tokens += length;
  const UnevenShares uneven = find_uneven_shares(cp_size);
  const auto tokens = static_cast<double>(num_tokens);
  const double more = cp_size * std::min(static_cast<double>(lengths.size()) * uneven.of_sample,
                                         tokens * uneven.of_token);
  const int64_t chunks = 2 * cp_size;
  Lengths whole;
  int64_t end = 0, units = 0;  // a unit is a token in each chunk
  for (const int64_t length : lengths) {
    end += length;
    const double share = static_cast<double>(end) / tokens * (tokens + more);
    const auto until = static_cast<int64_t>(std::ceil(share / static_cast<double>(chunks)));
    if (until > units) whole.push_back((until - units) * chunks);
    units = std::max(units, until);
  }
  return whole;
}

// Maximum over ranks of the rows that predict the last counts[i] tokens of each sample i.
int64_t count_rows(const Lengths& lengths, const Lengths& counts, int cp_size) {
  int64_t most = 0;
  for (int rank = 0; rank < cp_size; ++rank) {
    int64_t own = 0;
    for (size_t i = 0; i < lengths.size(); ++i) {
      const dist::Range rows{lengths[i] - 1 - counts[i], lengths[i] - 1};
      for (const dist::Range& chunk : model::context_chunks(lengths[i], cp_size, rank))
        own +=
            std::max<int64_t>(std::min(chunk.end, rows.end) - std::max(chunk.begin, rows.begin), 0);
    }
    most = std::max(most, own);
  }
  return most;
}

// How many last tokens each sample trains.
struct Counts {
  int64_t least = 0;
  int64_t first = 1;  // earlier tokens are never trained
  // `least` tokens of each sample, and `more` in total, given to the first samples.
  Lengths take(const Lengths& lengths, int64_t more) const {
    Lengths counts;
    for (const int64_t length : lengths) {
      const int64_t added = std::min(std::max<int64_t>(length - first - least, 0), more);
      counts.push_back(least + added);
      more -= added;
    }
    return counts;
  }
};

// The largest counts that give no rank more than `most_rows` rows, if there are any.
Lengths limit_rows(const Lengths& lengths, const Counts& counts, int64_t most_rows, int cp_size) {
  int64_t low = 0, high = 0;
  for (const int64_t length : lengths) high += length;
  while (low < high) {
    const int64_t middle = (low + high + 1) / 2;
    if (count_rows(lengths, counts.take(lengths, middle), cp_size) <= most_rows)
      low = middle;
    else
      high = middle - 1;
  }
  return counts.take(lengths, low);
}

// Samples whose loss masks are 1 for the last labels[i] response tokens and for those before token
// `first`.
std::vector<Sample> make_samples(const Lengths& lengths, const Lengths& responses,
                                 const Lengths& labels, int64_t first = 0) {
  std::vector<Sample> samples;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const auto n = static_cast<size_t>(responses[i]);
    Sample& s =
        samples.emplace_back(Sample{.tokens = std::vector<int32_t>(static_cast<size_t>(lengths[i])),
                                    .response_length = responses[i],
                                    .loss_mask = std::vector<uint8_t>(n, 0),
                                    .advantages = std::vector<float>(n),
                                    .old_log_probs = std::vector<float>(n),
                                    .ref_log_probs = std::vector<float>(n),
                                    .rollout_log_probs = std::vector<float>(n)});
    std::fill_n(s.loss_mask.rbegin(), labels[i], uint8_t{1});
    const int64_t before = std::clamp<int64_t>(first - s.prompt_length(), 0, responses[i]);
    std::fill_n(s.loss_mask.begin(), before, uint8_t{1});
  }
  return samples;
}

}  // namespace

std::vector<std::vector<Sample>> list_largest_microbatches(const MicrobatchLimits& limits) {
  const int64_t longest = std::max<int64_t>(limits.longest, 2);
  // All samples together may not fill the capacity.
  const int64_t num_samples = std::max<int64_t>(limits.num_samples, 1);
  const int64_t num_tokens = std::min(std::max(limits.num_tokens, longest), num_samples * longest);
  const int64_t most = std::clamp<int64_t>(num_samples, 1, num_tokens / 2);
  const int64_t fewest = std::min(most, (num_tokens + longest - 1) / longest);
  std::vector<Lengths> packings = {
      equal_lengths(num_tokens, fewest, longest), equal_lengths(num_tokens, most, longest),
      longest_lengths(num_tokens, most, longest), one_long_length(num_tokens, most, longest)};
  if (limits.cp_size > 1) {
    for (Lengths& lengths : packings) lengths = in_whole_chunks(lengths, limits.cp_size);
    packings.push_back(equal_lengths(num_tokens, most, longest));  // the most samples
    packings.push_back(one_long_length(num_tokens, most, longest));
  }
  std::vector<std::vector<Sample>> microbatches;
  for (const Lengths& lengths : packings) {
    Lengths whole;
    for (const int64_t length : lengths) whole.push_back(length - 1);
    microbatches.push_back(make_samples(lengths, whole, whole));
    const int64_t kept = limits.kept_logit_rows;
    if (count_rows(lengths, whole, limits.cp_size) <= kept) continue;
    const Lengths fewer = limit_rows(lengths, {.least = 1}, kept, limits.cp_size);
    microbatches.push_back(make_samples(lengths, fewer, fewer));
    for (int64_t depth = 0; depth < limits.num_trained_mtp; ++depth) {
      const int64_t first = depth + 2;  // label of an MTP layer
      const Lengths labels = limit_rows(lengths, {.first = first}, kept, limits.cp_size);
      microbatches.push_back(make_samples(lengths, whole, labels, first));
    }
  }
  return microbatches;
}

}  // namespace slimexx::train
