// Latent attention on the host in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/latent_attention/latent_case.cuh"

namespace slimexx::kernels::testing {

// A weight is rounded to bf16, and so are the weights whose sum divides the result: 2^-9 each.
inline constexpr double kWeightSlack = 0x1.8p-8;
inline constexpr double kLseSlack = 1e-4;

// Checks every `step`-th (query, head) row of a case, about 3e8 products in total.
struct LatentReference {
  int64_t step = 1;
  std::vector<int64_t> rows;  // query * heads + head
  std::vector<Exact> out, lse;

  explicit LatentReference(const LatentOperands& o) {
    double products = 0;
    for (const Chunk& c : o.sequences.whole())
      products += double(c.to - c.from) * double(c.from + c.to) / 2;
    products *= double(o.of.heads) * double(o.of.width() + o.of.values);
    step = static_cast<int64_t>(products / 3e8) | 1;
    const Bits q = o.q.get(), keys = o.keys.get();
    for (const Chunk& c : o.sequences.whole())
      for (int32_t p = c.from; p < c.to; ++p)
        for (int64_t h = 0; h < o.of.heads; ++h) {
          const int64_t query = o.sequences.query_row(c.sequence, p), row = query * o.of.heads + h;
          if (row % step != 0) continue;
          rows.push_back(row);
          std::vector<int64_t> seen;
          for (int64_t j = 0; j <= p && (o.of.list == 0 || j < o.of.list); ++j)
            seen.push_back(o.sequences.first_key(c.sequence) +
                           (o.of.list == 0 ? j : o.lists[query * o.of.list + j]));
          attend(o.of, q.data() + row * o.of.width(), keys, seen);
        }
  }

 private:
  void attend(const LatentCase& c, const uint16_t* q, const Bits& keys,
              const std::vector<int64_t>& seen) {
    std::vector<double> query, weights;
    for (int64_t i = 0; i < c.width(); ++i) query.push_back(to_float(q[i]));
    double highest = -INFINITY, sum = 0;
    for (const int64_t key : seen) {
      double score = 0;
      for (int64_t i = 0; i < c.width(); ++i)
        score += query[i] * to_float(keys[key * c.key_row() + i]);
      weights.push_back(score * double{c.scale()});
      highest = std::max(highest, weights.back());
    }
    for (double& weight : weights) sum += weight = std::exp(weight - highest);
    std::vector<Exact> row(static_cast<size_t>(c.values));
    for (size_t j = 0; j < seen.size(); ++j)
      for (int64_t i = 0; i < c.values; ++i) {
        const double term = weights[j] / sum * to_float(keys[seen[j] * c.key_row() + i]);
        row[i].value += term;
        row[i].magnitude += std::abs(term);
      }
    out.insert(out.end(), row.begin(), row.end());
    lse.push_back({highest + std::log(sum), 1.0});
  }
};

}  // namespace slimexx::kernels::testing
