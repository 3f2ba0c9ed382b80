#include "dist/collective_contract.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "dist/contract_data.h"

namespace slimexx::dist {
namespace {

using tensor::Arena;
using tensor::Buffer;
using tensor::Device;
using tensor::DType;
using tensor::Stream;
using tensor::Tensor;

using Ranges = std::vector<Range>;

class Contract {
 public:
  Contract(Collective& c, Device device)
      : c_(c),
        device_(device),
        arena_(device, int64_t{64} << 20, "contract"),
        streams_{tensor::compute_stream(device), tensor::side_stream(device)} {}

  std::string run() {
    for (const auto& check :
         {&Contract::check_copies, &Contract::check_sums, &Contract::check_any_order,
          &Contract::check_all_reduce, &Contract::check_all_to_all, &Contract::check_neighbours,
          &Contract::check_planning}) {
      if (std::string fault = (this->*check)(); !fault.empty())
        return fmt::format("rank {} of {}: {}", c_.rank(), c_.size(), fault);
    }
    c_.barrier();
    return "";
  }

 private:
  std::string check_copies();
  std::string check_sums();
  std::string check_any_order();
  std::string check_all_reduce();
  std::string check_all_to_all();
  std::string check_neighbours();
  std::string check_planning();

  int ranks() const { return c_.size(); }
  std::vector<Ranges> cuts(int64_t n) const;
  Buffer fill(const Bytes& bytes, Stream stream) {
    Buffer buffer(device_, static_cast<int64_t>(bytes.size()), "contract");
    tensor::upload(stream, view(buffer, DType::kU8), bytes.data());
    return buffer;
  }
  static Tensor view(const Buffer& buffer, DType dtype) {
    return buffer.view(dtype, {buffer.size_bytes() / tensor::dtype_bytes(dtype)});
  }
  static Bytes read(const Buffer& buffer, Stream stream) {
    Bytes bytes(static_cast<size_t>(buffer.size_bytes()));
    tensor::download(stream, bytes.data(), view(buffer, DType::kU8));
    return bytes;
  }
  std::vector<Bytes> everybodys_terms(int64_t n, DType dtype) const {
    std::vector<Bytes> terms;
    for (int r = 0; r < ranks(); ++r) terms.push_back(make_terms(r, n, dtype));
    return terms;
  }

  Collective& c_;
  Device device_;
  Arena arena_;
  std::vector<Stream> streams_;
};

// Test cases of ranges over n elements: equal tiles; split_range's result; sizes that grow with the
// rank (some elements belong to no rank); and for each rank, one case in which only it has
// elements.
std::vector<Ranges> Contract::cuts(int64_t n) const {
  Ranges tiles, growing;
  const int64_t tile = n / ranks(), step = n / (ranks() * (ranks() + 1) / 2);
  int64_t begin = 0;
  for (int r = 0; r < ranks(); ++r) {
    tiles.push_back({r * tile, (r + 1) * tile});
    const int64_t length = step * (r + 1);
    growing.push_back({begin, begin + length - (r % 2 == 0 ? 3 : 0)});
    begin += length;
  }
  std::vector<Ranges> cuts = {tiles, split_range(n, ranks()), growing};
  for (int owner = 0; owner < ranks(); ++owner) {
    Ranges alone(static_cast<size_t>(ranks()));
    alone[static_cast<size_t>(owner)] = {n / 3, n - 5};
    cuts.push_back(alone);
  }
  return cuts;
}

std::string Contract::check_copies() {
  const int64_t n = 1000;
  for (const Stream stream : streams_) {
    for (int root = 0; root < ranks(); ++root) {
      const Buffer data = fill(make_bytes(c_.rank(), n), stream);
      c_.broadcast(stream, view(data, DType::kU8), root);
      if (read(data, stream) != make_bytes(root, n)) return fmt::format("broadcast from {}", root);
    }
    const Buffer share = fill(make_bytes(c_.rank(), n), stream),
                 all = fill(Bytes(static_cast<size_t>(n * ranks())), stream);
    c_.all_gather(stream, all.view(DType::kBF16, {5 * ranks(), 100}),
                  share.view(DType::kBF16, {5, 100}));
    Bytes want;
    for (int r = 0; r < ranks(); ++r) std::ranges::copy(make_bytes(r, n), std::back_inserter(want));
    if (read(all, stream) != want) return "all_gather";

    for (const int64_t rows : {1000, 65536}) {
      auto cases = cuts(rows);
      Ranges buckets;  // of several sizes, gathered in one call
      for (int64_t begin = 0, length = 16; begin < rows; length *= 3) {
        const int64_t end = std::min(rows, begin + length);
        for (const Range& r : split_range(end - begin, ranks()))
          buckets.push_back({begin + r.begin, begin + r.end});
        begin = end;
      }
      cases.push_back(buckets);
      for (size_t k = 0; k < cases.size(); ++k) {
        const int64_t width = 6;  // bytes per row: three bf16
        const Buffer data = fill(make_bytes(c_.rank(), rows * width), stream);
        c_.all_gather_ranges(stream, data.view(DType::kBF16, {rows, 3}), cases[k]);
        Bytes expected = make_bytes(c_.rank(), rows * width);
        for (size_t i = 0; i < cases[k].size(); ++i) {
          const Bytes theirs =
              make_bytes(static_cast<int>(i % static_cast<size_t>(ranks())), rows * width);
          std::copy(theirs.begin() + cases[k][i].begin * width,
                    theirs.begin() + cases[k][i].end * width,
                    expected.begin() + cases[k][i].begin * width);
        }
        if (read(data, stream) != expected)
          return fmt::format("all_gather_ranges: {} rows, case {}", rows, k);
        if (std::ssize(cases[k]) != ranks()) continue;
        const Range own = cases[k][static_cast<size_t>(c_.rank())];
        Bytes before = make_bytes(c_.rank(), rows * width);
        std::fill(before.begin() + own.begin * width, before.begin() + own.end * width, char{77});
        const Buffer target = fill(before, stream),
                     given = fill(slice(expected, own, width), stream);
        c_.gather_shares(stream, target.view(DType::kBF16, {rows, 3}),
                         given.view(DType::kBF16, {own.size(), 3}), cases[k]);
        if (read(target, stream) != expected)
          return fmt::format("gather_shares: {} rows, case {}", rows, k);
      }
    }
  }
  return "";
}

// Sums match bit for bit; elements outside the rank's range are unchanged.
std::string Contract::check_sums() {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t n : {1000, 65536}) {
      const auto terms = everybodys_terms(n, dtype);
      const auto cases = cuts(n);
      for (size_t k = 0; k < cases.size(); ++k) {
        const Stream stream = streams_[k % 2];
        const Buffer data = fill(terms[static_cast<size_t>(c_.rank())], stream);
        c_.reduce_scatter_sum(stream, arena_, view(data, dtype), cases[k], SumOrder::kRank);
        Bytes want = terms[static_cast<size_t>(c_.rank())];
        const Range mine = cases[k][static_cast<size_t>(c_.rank())];
        for (int64_t i = mine.begin; i < mine.end; ++i)
          combine_element(terms, dtype, i, true, want);
        if (read(data, stream) != want)
          return fmt::format("reduce_scatter_sum of {} {}, case {}", n, tensor::dtype_name(dtype),
                             k);
        const int64_t width = tensor::dtype_bytes(dtype);
        const Buffer again = fill(terms[static_cast<size_t>(c_.rank())], stream),
                     result = fill(Bytes(static_cast<size_t>(mine.size() * width + 1)), stream);
        c_.sum_to_shares(stream, arena_, result.view(dtype, {mine.size()}), view(again, dtype),
                         cases[k]);
        if (read(result, stream) != slice(want, mine, width))
          return fmt::format("sum_to_shares of {} {}, case {}", n, tensor::dtype_name(dtype), k);
      }
      const Stream stream = streams_[0];
      const Buffer data = fill(terms[static_cast<size_t>(c_.rank())], stream),
                   result = fill(Bytes(terms[0].size()), stream);
      c_.sum_to_all(stream, arena_, view(result, dtype), view(data, dtype));
      Bytes want(terms[0].size());
      for (int64_t i = 0; i < n; ++i) combine_element(terms, dtype, i, true, want);
      if (read(result, stream) != want)
        return fmt::format("sum_to_all of {} {}", n, tensor::dtype_name(dtype));
    }
  }
  return "";
}

// Sums in the backend's own order are within the rounding of any order, and have the same bits in
// each run.
std::string Contract::check_any_order() {
  for (const int64_t n : {1000, 65536, 2000016}) {
    if (n > 100000 && device_.is_cpu()) continue;  // for many elements, NCCL has another algorithm
    const auto terms = everybodys_terms(n, DType::kF32);
    const auto cases = cuts(n);
    for (size_t k = 0; k < cases.size(); ++k) {
      const Stream stream = streams_[k % 2];
      Bytes first;
      for (int run = 0; run < 3; ++run) {
        const Buffer data = fill(terms[static_cast<size_t>(c_.rank())], stream);
        c_.reduce_scatter_sum(stream, arena_, view(data, DType::kF32), cases[k], SumOrder::kAny);
        const Bytes now = read(data, stream);
        if (run == 0) first = now;
        if (now != first) return fmt::format("any order: {} elements, case {}, run {}", n, k, run);
      }
      const Range mine = cases[k][static_cast<size_t>(c_.rank())];
      for (int64_t i = 0; i < n; ++i) {
        double want = at<float>(terms[static_cast<size_t>(c_.rank())], i), magnitude = 0;
        if (mine.begin <= i && i < mine.end) {
          want = 0;
          for (const Bytes& t : terms) {
            want += at<float>(t, i);
            magnitude += std::abs(at<float>(t, i));
          }
        }
        // Each addition rounds by at most 2^-24 of its result.
        if (!(std::abs(at<float>(first, i) - want) <= (ranks() - 1) * magnitude * 0x1p-24)) {
          return fmt::format("any order: {} elements, case {}: [{}] is {:.9g}, wanted {:.9g}", n, k,
                             i, at<float>(first, i), want);
        }
      }
    }
  }
  return "";
}

std::string Contract::check_all_reduce() {
  const Stream stream = streams_[0];
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF64}) {
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{37}, int64_t{5000}}) {
      for (const bool sums : {true, false}) {
        if (!sums && dtype == DType::kBF16) continue;
        const auto terms = everybodys_terms(n, dtype);
        Bytes want(terms[0].size());
        for (int64_t i = 0; i < n; ++i) combine_element(terms, dtype, i, sums, want);
        const Buffer data = fill(terms[static_cast<size_t>(c_.rank())], stream);
        if (sums) c_.all_reduce_sum(stream, arena_, view(data, dtype), SumOrder::kRank);
        if (!sums) c_.all_reduce_max(stream, arena_, view(data, dtype));
        if (read(data, stream) != want)
          return fmt::format("all_reduce_{} of {} {}", sums ? "sum" : "max", n,
                             tensor::dtype_name(dtype));
      }
    }
  }
  // Small integers: their sum is exact in any order.
  const std::vector<float> mine(100, static_cast<float>(c_.rank() + 1));
  Bytes bytes(mine.size() * 4);
  std::memcpy(bytes.data(), mine.data(), bytes.size());
  const Buffer data = fill(bytes, stream);
  c_.all_reduce_sum(stream, arena_, view(data, DType::kF32), SumOrder::kAny);
  const Bytes sums = read(data, stream);
  for (int64_t i = 0; i < 100; ++i) {
    if (at<float>(sums, i) != static_cast<float>(ranks() * (ranks() + 1) / 2))
      return "all_reduce_sum in any order";
  }
  return "";
}

// Rank a sends (3 a + 5 b) % 7 rows to rank b; some counts are 0.
std::string Contract::check_all_to_all() {
  const Stream stream = streams_[0];
  const int64_t width = 16, max_rows = 7 * ranks();
  const auto count = [](int from, int to) { return int64_t{(3 * from + 5 * to) % 7}; };
  const auto rows_of = [&](int from) {  // rows to each rank
    std::vector<int64_t> rows;
    for (int to = 0; to < ranks(); ++to) rows.push_back(count(from, to));
    return rows;
  };
  std::vector<int64_t> receives;
  Bytes want;
  for (int from = 0; from < ranks(); ++from) {
    const Bytes theirs = make_bytes(from, max_rows * width);
    int64_t before = 0;
    for (int to = 0; to < c_.rank(); ++to) before += count(from, to);
    receives.push_back(count(from, c_.rank()));
    want.insert(want.end(), theirs.begin() + before * width,
                theirs.begin() + (before + receives.back()) * width);
  }
  const auto sends = rows_of(c_.rank());
  int64_t sent = 0;
  for (const int64_t n : sends) sent += n;
  const Buffer source = fill(make_bytes(c_.rank(), max_rows * width), stream),
               result = fill(Bytes(static_cast<size_t>(max_rows * width)), stream);
  const auto num_received = static_cast<int64_t>(want.size()) / width;
  c_.all_to_all(stream, result.view(DType::kF32, {max_rows, 4}).rows(0, num_received),
                source.view(DType::kF32, {max_rows, 4}).rows(0, sent), sends, receives);
  want.resize(static_cast<size_t>(max_rows * width));  // the rest is unchanged
  return read(result, stream) == want ? "" : "all_to_all";
}

// Sends around a ring: rank 0 sends first, its neighbours receive first.
std::string Contract::check_neighbours() {
  if (ranks() == 1) return "";
  const int64_t n = 3001;
  const int next = (c_.rank() + 1) % ranks(), last = (c_.rank() + ranks() - 1) % ranks();
  for (const Stream stream : streams_) {
    const Buffer mine = fill(make_bytes(c_.rank(), n), stream),
                 theirs = fill(Bytes(static_cast<size_t>(n)), stream);
    const auto send = [&] { c_.send(stream, view(mine, DType::kU8), next); };
    if (c_.rank() == 0) send();
    c_.receive(stream, view(theirs, DType::kU8), last);
    if (c_.rank() != 0) send();
    if (read(theirs, stream) != make_bytes(last, n)) return fmt::format("received from {}", last);
  }
  return "";
}

// A dry run by one rank alone uses the same scratch as the real run and waits for no rank.
std::string Contract::check_planning() {
  const int64_t n = 5000;
  const auto ranges = split_range(n, ranks());
  const auto run = [&](Stream stream, Arena& arena, const Tensor& data) {
    c_.reduce_scatter_sum(stream, arena, data, ranges, SumOrder::kRank);
    c_.reduce_scatter_sum(stream, arena, data, ranges, SumOrder::kAny);
    c_.all_reduce_sum(stream, arena, data, SumOrder::kRank);
    c_.all_reduce_max(stream, arena, data);
    c_.all_gather_ranges(stream, data, ranges);
    c_.broadcast(stream, data, 0);
  };
  Arena plan = Arena::for_planning(device_, "contract");
  if (c_.rank() == 0)
    run(tensor::planning_stream(device_), plan, Tensor(nullptr, DType::kF32, device_, {n}));
  Arena real(device_, int64_t{1} << 20, "contract");
  const Buffer data = fill(make_terms(c_.rank(), n, DType::kF32), streams_[0]);
  run(streams_[0], real, view(data, DType::kF32));
  tensor::synchronize(streams_[0]);
  if (c_.rank() != 0) return "";
  if (plan.high_water_bytes() == real.high_water_bytes() && real.used_bytes() == 0) return "";
  return fmt::format("planned {} bytes of scratch, took {}", plan.high_water_bytes(),
                     real.high_water_bytes());
}

}  // namespace

std::string check_collective(Collective& c, Device device) {
  std::string fault = Contract(c, device).run();
  if (!fault.empty() || c.size() == 1) return fault;
  // Checks even and odd ranks at the same time, in reverse order; then splits each part again, down
  // to single ranks.
  const int color = c.rank() % 2;
  const auto part = c.split(color, -c.rank());
  const int members = (c.size() + 1 - color) / 2, place = members - 1 - c.rank() / 2;
  if (part->size() != members || part->rank() != place)
    return fmt::format("split: rank {} of {} is {} of {}", c.rank(), c.size(), part->rank(),
                       part->size());
  fault = check_collective(*part, device);
  c.barrier();
  return fault.empty() ? fault : "part of a split: " + fault;
}

}  // namespace slimexx::dist
