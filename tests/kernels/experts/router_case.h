// A case of the router: the logits of some tokens, and the host's choices and gradients in double.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "slimexx/kernels/experts.h"
#include "tests/kernels/rows/rows_arrays.h"

namespace slimexx::kernels::testing {

struct RouterCase {
  RouterShape shape;
  int64_t tokens = 0;
  bool has_bias = false;
  std::vector<float> logits, bias, dweights;  // [tokens, experts], [experts], [tokens, top_k]

  RouterCase(const RouterShape& router, int64_t num_tokens, bool with_bias)
      : shape(router),
        tokens(num_tokens),
        has_bias(with_bias),
        logits(random_floats(num_tokens * router.experts, 1.5f)),
        bias(random_floats(router.experts, 0.1f)),
        dweights(random_floats(num_tokens * router.top_k)) {}
  int64_t count() const { return tokens * shape.top_k; }
  std::string name() const {
    return std::to_string(tokens) + " tokens, " + std::to_string(shape.top_k) + " of " +
           std::to_string(shape.experts) + " experts, " + std::to_string(shape.groups) + " groups" +
           (shape.sigmoid ? ", sigmoid" : "") + (has_bias ? ", bias" : "");
  }
};

// One token's scores and choice.
struct RouterRow {
  std::vector<double> scores;
  std::vector<int32_t> ids;  // ascending
  // The lowest score that is chosen minus the highest score that is not. If it is within rounding,
  // the device may choose the second of these experts instead of the first.
  double margin = 1;

  RouterRow(const RouterCase& c, int64_t token) : scores(static_cast<size_t>(c.shape.experts)) {
    const float* logits = c.logits.data() + token * c.shape.experts;
    for (size_t e = 0; e < scores.size(); ++e)
      scores[e] =
          c.shape.sigmoid ? 1 / (1 + std::exp(-double{logits[e]})) : std::exp(double{logits[e]});
    if (!c.shape.sigmoid) {
      const double sum = std::accumulate(scores.begin(), scores.end(), 0.0);
      for (double& score : scores) score /= sum;
    }
    std::vector<double> choice = scores;
    for (size_t e = 0; c.has_bias && e < choice.size(); ++e) choice[e] += double{c.bias[e]};
    if (c.shape.kept_groups < c.shape.groups) limit_groups(c.shape, choice);
    ids = take_best(choice, c.shape.top_k);
    std::sort(ids.begin(), ids.end());
  }

 private:
  // The indices of the `count` largest values; ties go to the lower index.
  std::vector<int32_t> take_best(const std::vector<double>& values, int64_t count) {
    std::vector<int32_t> order(values.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return values[a] > values[b]; });
    if (count < static_cast<int64_t>(order.size()))
      margin = std::min(margin, values[order[count - 1]] - values[order[count]]);
    order.resize(static_cast<size_t>(count));
    return order;
  }
  void limit_groups(const RouterShape& shape, std::vector<double>& choice) {
    const int64_t size = shape.experts / shape.groups;
    std::vector<double> sums;
    for (int64_t g = 0; g < shape.groups; ++g) {
      std::vector<double> own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
      std::sort(own.rbegin(), own.rend());
      sums.push_back(own[0] + (size > 1 ? own[1] : 0.0));
    }
    std::vector<bool> kept(sums.size());
    for (const int32_t g : take_best(sums, shape.kept_groups)) kept[g] = true;
    for (size_t e = 0; e < choice.size(); ++e)
      if (!kept[e / size]) choice[e] = -INFINITY;
  }
};

// For one token with given choices: the weights of the chosen experts, and the gradient with
// respect to the logits.
struct RouterGradient {
  std::vector<Exact> weights, dlogits;

  RouterGradient(const RouterCase& c, int64_t token, const std::vector<double>& scores,
                 const int32_t* ids)
      : weights(static_cast<size_t>(c.shape.top_k)), dlogits(scores.size()) {
    const int64_t k = c.shape.top_k;
    const float* dweights = c.dweights.data() + token * k;
    double sum = c.shape.normalized ? double{c.shape.epsilon} : 1.0, mean = 0, size = 0;
    for (int64_t j = 0; j < k && c.shape.normalized; ++j) sum += scores[ids[j]];
    for (int64_t j = 0; j < k && c.shape.normalized; ++j) {
      mean += dweights[j] * scores[ids[j]] / sum;
      size += std::abs(dweights[j] * scores[ids[j]] / sum);
    }
    std::vector<Exact> dscores(scores.size());
    double weighted = 0, weighted_size = 0;
    for (int64_t j = 0; j < k; ++j) {
      const double factor = double{c.shape.scaling_factor} / sum, score = scores[ids[j]];
      weights[j] = {factor * score, factor * score};
      dscores[ids[j]] = {factor * (dweights[j] - mean), factor * (std::abs(dweights[j]) + size)};
      weighted += dscores[ids[j]].value * score;
      weighted_size += dscores[ids[j]].magnitude * score;
    }
    for (size_t e = 0; e < scores.size(); ++e) {
      const double slope = c.shape.sigmoid ? 1 - scores[e] : 1.0;
      const double common = c.shape.sigmoid ? 0 : weighted;
      dlogits[e] = {scores[e] * slope * (dscores[e].value - common),
                    scores[e] * (dscores[e].magnitude + weighted_size)};
    }
  }
};

// The order of choices by expert.
struct HostOrder {
  std::vector<int32_t> offsets, choices, tokens, rows;

  HostOrder(const std::vector<int32_t>& ids, int64_t experts, int64_t top_k)
      : offsets(static_cast<size_t>(experts) + 1), rows(ids.size()) {
    for (int32_t e = 0; e < experts; ++e) {
      for (size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != e) continue;
        rows[i] = static_cast<int32_t>(choices.size());
        choices.push_back(static_cast<int32_t>(i));
        tokens.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / top_k));
      }
      offsets[e + 1] = static_cast<int32_t>(choices.size());
    }
  }
};

}  // namespace slimexx::kernels::testing
