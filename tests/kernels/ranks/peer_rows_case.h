// A case of rows that are dispatched to the experts of other ranks and combined. Every element
// encodes its origin, so that the host knows what each rank must receive.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "slimexx/kernels/peers.h"
#include "tests/kernels/experts/router_case.h"

namespace slimexx::kernels::testing {

struct PeerRowsCase {
  int ranks;
  int64_t copies, top_k, width;
  std::vector<int64_t> tokens;  // of the ranks, by turns

  std::string name() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(top_k) + " of " +
           std::to_string(copies) + " copies, width " + std::to_string(width);
  }
  // The range [first, second) of copies that a rank holds.
  std::pair<int64_t, int64_t> held_by(int rank) const {
    return {copies * rank / ranks, copies * (rank + 1) / ranks};
  }
};

// A received row.
struct PeerRow {
  int64_t copy;
  int rank;
  int64_t token, choice;
};

// One call: the copies of experts that each rank's tokens choose.
struct PeerCall {
  const PeerRowsCase& of;
  int64_t number;
  std::vector<std::vector<int32_t>> ids;  // by rank [tokens, top_k], ascending in a row
  std::vector<HostOrder> orders;          // by rank

  PeerCall(const PeerRowsCase& c, int64_t call) : of(c), number(call) {
    for (int rank = 0; rank < c.ranks; ++rank) {
      ids.push_back(draw_ids(rank));
      orders.emplace_back(ids.back(), c.copies, c.top_k);
    }
  }
  int64_t num_tokens(int rank) const {
    return of.tokens[static_cast<size_t>(rank + number) % of.tokens.size()];
  }
  int64_t num_rows(int rank) const { return num_tokens(rank) * of.top_k; }
  // The order in which a rank holds its received rows: by copy, then by sending rank, then by
  // token.
  std::vector<PeerRow> received_by(int holder) const {
    std::vector<PeerRow> rows;
    for (int64_t copy = of.held_by(holder).first; copy < of.held_by(holder).second; ++copy)
      for (int rank = 0; rank < of.ranks; ++rank)
        for (size_t i = 0; i < ids[rank].size(); ++i)
          if (ids[rank][i] == copy)
            rows.push_back(
                {copy, rank, static_cast<int64_t>(i) / of.top_k, static_cast<int64_t>(i)});
    return rows;
  }
  uint16_t element(int input, int rank, int64_t token, int64_t column) const {
    const int64_t first = number * 7001 + rank * 977 + token * 131 + column;
    return static_cast<uint16_t>(input == 0 ? first : first * 5 + 1);
  }
  uint16_t result(const PeerRow& row, int64_t column) const {
    return static_cast<uint16_t>(element(0, row.rank, row.token, column) * 3 + row.copy * 17);
  }
  float value(int rank, int64_t choice) const {
    return static_cast<float>(number * 131072 + rank * 16384 + choice);
  }
  float returned_value(const PeerRow& row) const {
    return value(row.rank, row.choice) + 0.5f + static_cast<float>(row.copy);
  }

 private:
  // Copy 0 gets many rows; the last copy gets none if there are more copies than choices per token.
  std::vector<int32_t> draw_ids(int rank) const {
    std::mt19937_64 random(static_cast<uint64_t>(1000 * number + rank));
    std::vector<int32_t> all;
    const int64_t most = std::max(of.top_k, of.copies - 1);
    for (int64_t t = 0; t < num_tokens(rank); ++t) {
      std::vector<int32_t> row;
      while (static_cast<int64_t>(row.size()) < of.top_k) {
        const auto id = static_cast<int32_t>(
            random() % 2 == 0 ? row.size() : random() % static_cast<uint64_t>(most));
        if (std::find(row.begin(), row.end(), id) == row.end()) row.push_back(id);
      }
      std::sort(row.begin(), row.end());
      all.insert(all.end(), row.begin(), row.end());
    }
    return all;
  }
};

}  // namespace slimexx::kernels::testing
