// Code shared by all backends: checks, planning, groups of one, and sums in rank order (an exchange
// of shards, then a local sum).
#include "slimexx/dist/collective.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "dist/backend.h"
#include "dist/peers/path_check.h"
#include "dist/peers/peer_exchange.h"
#include "slimexx/base/check.h"

namespace slimexx::dist {
namespace {

using tensor::DType;
using tensor::Stream;
using tensor::Tensor;

constexpr int64_t kShareElements = 16;  // alignment of an all-reduce's shares

constexpr ShortName kBarrier{"barrier"}, kBroadcast{"broadcast"}, kAllGather{"all_gather"},
    kReduceScatter{"reduce_scatter"}, kAllReduce{"all_reduce"}, kAllToAll{"all_to_all"},
    kSend{"send"}, kReceive{"receive"}, kSplit{"split"}, kMakeCounter{"make_counter"},
    kOnDevice{"on_device"};

char* bytes_of(const Tensor& tensor) { return static_cast<char*>(tensor.raw()); }

int64_t row_bytes(const Tensor& t) {
  int64_t bytes = tensor::dtype_bytes(t.dtype());
  for (int d = 1; d < t.num_dims(); ++d) bytes *= t.dim(d);
  return bytes;
}

void check_sum(const Tensor& data, SumOrder order) {
  const DType type = data.dtype();
  const bool has_order = type == DType::kF32 || type == DType::kBF16 || type == DType::kF64;
  SLX_CHECK(order == SumOrder::kRank ? has_order : type == DType::kF32, "sum of {}",
            data.shape_text());
}

Tensor flatten(const Tensor& t) {
  return Tensor(t.raw(), t.dtype(), t.device(), {t.num_elements()});
}

void check_ranges(const Tensor& data, std::span<const Range> ranges) {
  for (const Range& r : ranges)
    SLX_CHECK(0 <= r.begin && r.begin <= r.end && r.end <= data.dim(0), "rows [{}, {}) of {}",
              r.begin, r.end, data.shape_text());
}

std::vector<Range> in_elements(const Tensor& data, std::span<const Range> ranges) {
  const int64_t width = row_bytes(data) / tensor::dtype_bytes(data.dtype());
  std::vector<Range> elements;
  for (const Range& r : ranges) elements.push_back({r.begin * width, r.end * width});
  return elements;
}

// `share` must have the type and size of the rows that it replaces.
void check_share(const Tensor& share, const Tensor& rows) {
  SLX_CHECK(share.dtype() == rows.dtype() && share.size_bytes() == rows.size_bytes(),
            "share {} for rows {}", share.shape_text(), rows.shape_text());
}

int64_t sum_rows(std::span<const int64_t> rows) {
  return std::accumulate(rows.begin(), rows.end(), int64_t{0});
}

int64_t sum_ranges(std::span<const Range> ranges) {
  int64_t sum = 0;
  for (const Range& r : ranges) sum += r.size();
  return sum;
}

// Skips empty messages: both sides know the sizes, and with hundreds of ranks most may be empty.
void add_message(std::vector<Message>& messages, const Message& message) {
  if (message.size_bytes > 0) messages.push_back(message);
}

// Messages for consecutive rows, by rank, except this rank's own.
std::vector<Message> list_messages(const Tensor& data, std::span<const int64_t> rows, int own) {
  std::vector<Message> messages;
  char* at = bytes_of(data);
  const int64_t width = row_bytes(data);
  for (int rank = 0; rank < static_cast<int>(rows.size()); ++rank) {
    const int64_t size_bytes = rows[static_cast<size_t>(rank)] * width;
    if (rank != own) add_message(messages, {rank, at, size_bytes});
    at += size_bytes;
  }
  return messages;
}

// The id of the group that the `number`th split of `whole` made for a color. All ranks of that
// group compute the same id. MurmurHash3's bit finalizer makes collisions unlikely.
uint64_t id_of_part(uint64_t whole, int64_t number, int color) {
  if (whole == 0) return 0;
  uint64_t id = whole;
  for (const uint64_t part : {static_cast<uint64_t>(number), static_cast<uint64_t>(color)}) {
    id += part + 0x9e3779b97f4a7c15;
    id = (id ^ (id >> 33)) * 0xff51afd7ed558ccd;
    id = (id ^ (id >> 33)) * 0xc4ceb9fe1a85ec53;
    id ^= id >> 33;
  }
  return id;
}

class CounterOfOne : public SharedCounter {
 public:
  int64_t fetch_add(int64_t amount) override { return std::exchange(value_, value_ + amount); }

 private:
  int64_t value_ = 0;
};

}  // namespace

Collective::Collective() = default;
Collective::Collective(std::unique_ptr<Backend> backend, uint64_t id)
    : backend_(std::move(backend)), id_(id) {
  if (!backend_) return;
  rank_ = backend_->rank();
  size_ = backend_->size();
  device_ = backend_->device();
  note_membership({.group = id_, .rank = rank_});
}
Collective::~Collective() = default;
Collective::Collective(Collective&&) noexcept = default;
Collective& Collective::operator=(Collective&&) noexcept = default;

void Collective::check_tensor(Stream stream, const Tensor& data) const {
  SLX_CHECK(data.num_dims() >= 1 && data.is_contiguous() && data.device() == stream.device, "{}",
            data.shape_text());
  SLX_CHECK(size_ == 1 || data.device() == device_, "tensor {} on {}, group on {}",
            data.shape_text(), tensor::to_string(data.device()), tensor::to_string(device_));
}

Tensor Collective::own_rows(const Tensor& data, std::span<const Range> ranges) const {
  const Range& own = ranges[static_cast<size_t>(rank_)];
  return data.rows(own.begin, own.end);
}

const PeerMemory* Collective::find_peers(Stream stream, const Tensor& data) const {
  if (peer_memories_.empty() || stream.is_planning) return nullptr;
  const PeerMemory* found = nullptr;
  if (data.num_elements() > 0 && stream.handle == tensor::compute_stream(stream.device).handle) {
    const auto holds = [&](const PeerMemory* m) { return m->kernels_wait() && m->holds(data); };
    const auto at = std::ranges::find_if(peer_memories_, holds);
    if (at != peer_memories_.end()) found = *at;
  }
  check_path(*backend_, stream, name_, found != nullptr, data.size_bytes());
  return found;
}

bool Collective::is_queued() const { return backend_ && backend_->is_queued(); }

void Collective::barrier() {
  if (!backend_) return;
  const CallScope scope(kBarrier, name_, size_, 0, next_call());
  backend_->barrier();
}

void Collective::broadcast(Stream stream, Tensor data, int root) {
  check_tensor(stream, data);
  SLX_CHECK(0 <= root && root < size_, "root {} of {}", root, size_);
  if (!backend_ || data.size_bytes() == 0) return;
  if (stream.is_planning) return backend_->plan_sent(data.size_bytes());
  const CallScope scope(kBroadcast, name_, size_, data.size_bytes(), next_call());
  backend_->broadcast(stream, bytes_of(data), data.size_bytes(), root);
}

void Collective::all_gather(Stream stream, Tensor result, Tensor share) {
  check_tensor(stream, result);
  check_tensor(stream, share);
  SLX_CHECK(result.dtype() == share.dtype() && result.dim(0) == share.dim(0) * size_ &&
                result.size_bytes() == share.size_bytes() * size_,
            "result {} for {} shares {}", result.shape_text(), size_, share.shape_text());
  std::vector<Range> ranges;
  for (int r = 0; r < size_; ++r) ranges.push_back({r * share.dim(0), (r + 1) * share.dim(0)});
  gather_shares(stream, result, share, ranges);
}

void Collective::gather_shares(Stream stream, Tensor data, Tensor share,
                               std::span<const Range> ranges) {
  check_tensor(stream, data);
  check_tensor(stream, share);
  check_ranges(data, ranges);
  SLX_CHECK_EQ(static_cast<int>(ranges.size()), size_);
  check_share(share, own_rows(data, ranges));
  if (find_peers(stream, data) == nullptr) {
    const Tensor own = own_rows(data, ranges);
    tensor::copy_bytes(stream, own, share);
    share = own;
  }
  gather(stream, data, share, ranges);
}

void Collective::all_gather_ranges(Stream stream, Tensor data, std::span<const Range> ranges) {
  check_tensor(stream, data);
  check_ranges(data, ranges);
  SLX_CHECK(!ranges.empty() && ranges.size() % static_cast<size_t>(size_) == 0,
            "{} ranges for {} ranks", ranges.size(), size_);
  gather(stream, data, std::ssize(ranges) == size_ ? own_rows(data, ranges) : Tensor{}, ranges);
}

// `share`: this rank's contribution, if there is one bucket; otherwise undefined.
void Collective::gather(Stream stream, const Tensor& data, const Tensor& share,
                        std::span<const Range> ranges) {
  if (!backend_) return;
  const int64_t width = row_bytes(data);
  if (stream.is_planning)
    return backend_->plan_sent(sum_ranges(ranges) * width / size_ * (size_ - 1));
  std::vector<Range> in_bytes;
  for (const Range& r : ranges) in_bytes.push_back({r.begin * width, r.end * width});
  const CallScope scope(kAllGather, name_, size_, data.size_bytes(), next_call());
  const PeerMemory* peers = share.defined() ? find_peers(stream, data) : nullptr;
  if (peers != nullptr) return gather_by_peers(*peers, stream, data, share, in_bytes);
  backend_->all_gather_ranges(stream, bytes_of(data), in_bytes);
}

void Collective::reduce_scatter_sum(Stream stream, tensor::Arena& scratch, Tensor data,
                                    std::span<const Range> ranges, SumOrder order) {
  check_tensor(stream, data);
  check_ranges(data, ranges);
  SLX_CHECK_EQ(static_cast<int>(ranges.size()), size_);
  check_sum(data, order);
  if (!backend_) return;
  std::optional<CallScope> scope;
  if (!stream.is_planning)
    scope.emplace(kReduceScatter, name_, size_, data.size_bytes(), next_call());
  const std::vector<Range> elements = in_elements(data, ranges);
  if (order == SumOrder::kRank || !backend_->reduces())
    return reduce_scatter(stream, scratch, flatten(data), elements, Combine::kSum);
  if (stream.is_planning)
    return backend_->plan_sent(sum_ranges(ranges) * row_bytes(data) / size_ * (size_ - 1));
  backend_->reduce_scatter_sum(stream, flatten(data), elements);
}

void Collective::sum_to_shares(Stream stream, tensor::Arena& scratch, Tensor result, Tensor data,
                               std::span<const Range> ranges) {
  check_tensor(stream, data);
  check_tensor(stream, result);
  check_ranges(data, ranges);
  SLX_CHECK_EQ(static_cast<int>(ranges.size()), size_);
  check_share(result, own_rows(data, ranges));
  check_sum(data, SumOrder::kRank);
  const PeerMemory* peers = find_peers(stream, data);
  if (peers == nullptr) {
    reduce_scatter_sum(stream, scratch, data, ranges, SumOrder::kRank);
    return tensor::copy_bytes(stream, result, own_rows(data, ranges));
  }
  const CallScope scope(kReduceScatter, name_, size_, data.size_bytes(), next_call());
  sum_by_peers(*peers, stream, result, flatten(data), in_elements(data, ranges));
}

void Collective::sum_to_all(Stream stream, tensor::Arena& scratch, Tensor result, Tensor data) {
  check_tensor(stream, data);
  check_tensor(stream, result);
  check_share(result, data);
  check_sum(data, SumOrder::kRank);
  const PeerMemory* peers = find_peers(stream, data);
  if (peers == nullptr) {
    all_reduce(stream, scratch, data, Combine::kSum, false);
    return tensor::copy_bytes(stream, result, data);
  }
  const CallScope scope(kAllReduce, name_, size_, data.size_bytes(), next_call());
  sum_to_all_by_peers(*peers, stream, result, data);
}

// Every rank receives its range of elements from all others, then combines them in rank order.
void Collective::reduce_scatter(Stream stream, tensor::Arena& scratch, const Tensor& data,
                                std::span<const Range> ranges, Combine combine) {
  const Range mine = ranges[static_cast<size_t>(rank_)];
  const PeerMemory* peers = combine == Combine::kSum ? find_peers(stream, data) : nullptr;
  if (peers != nullptr) return sum_by_peers(*peers, stream, own_rows(data, ranges), data, ranges);
  const int64_t width = tensor::dtype_bytes(data.dtype()), mine_bytes = mine.size() * width;
  const tensor::ArenaScope scope(scratch);
  const Tensor others = scratch.allocate(DType::kU8, {(size_ - 1) * mine_bytes});
  if (stream.is_planning)
    return backend_->plan_sent(sum_ranges(ranges) * width / size_ * (size_ - 1));
  const Terms terms{.own = bytes_of(data) + mine.begin * width,
                    .others = bytes_of(others),
                    .rank = rank_,
                    .size = size_,
                    .n = mine.size(),
                    .dtype = data.dtype()};
  std::vector<Message> sends, receives;
  char* at = bytes_of(others);
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const Range& theirs = ranges[static_cast<size_t>(peer)];
    add_message(sends, {peer, bytes_of(data) + theirs.begin * width, theirs.size() * width});
    add_message(receives, {peer, at, mine_bytes});
    at += mine_bytes;
  }
  backend_->exchange(stream, sends, receives);
  if (terms.n > 0) backend_->combine(stream, terms, combine);
}

void Collective::all_reduce(Stream stream, tensor::Arena& scratch, const Tensor& data,
                            Combine combine, bool any_order) {
  if (!backend_ || data.num_elements() == 0) return;
  std::optional<CallScope> scope;
  if (!stream.is_planning) scope.emplace(kAllReduce, name_, size_, data.size_bytes(), next_call());
  const Tensor flat = flatten(data);
  if (any_order && backend_->reduces()) {
    if (stream.is_planning)
      return backend_->plan_sent(2 * (data.size_bytes() / size_ * (size_ - 1)));
    return backend_->all_reduce(stream, flat, combine);
  }
  const auto ranges = split_range(flat.dim(0), size_, kShareElements);
  reduce_scatter(stream, scratch, flat, ranges, combine);
  all_gather_ranges(stream, flat, ranges);
}

void Collective::all_reduce_sum(Stream stream, tensor::Arena& scratch, Tensor data,
                                SumOrder order) {
  check_tensor(stream, data);
  check_sum(data, order);
  all_reduce(stream, scratch, data, Combine::kSum, order == SumOrder::kAny);
}

void Collective::all_reduce_max(Stream stream, tensor::Arena& scratch, Tensor data) {
  check_tensor(stream, data);
  SLX_CHECK(data.dtype() == DType::kF32 || data.dtype() == DType::kF64, "maximum of {}",
            data.shape_text());
  all_reduce(stream, scratch, data, Combine::kMax, true);
}

void Collective::all_to_all(Stream stream, Tensor result, Tensor source,
                            std::span<const int64_t> send_rows,
                            std::span<const int64_t> receive_rows) {
  check_tensor(stream, result);
  check_tensor(stream, source);
  const auto own = static_cast<size_t>(rank_);
  SLX_CHECK(send_rows.size() == static_cast<size_t>(size_) &&
                receive_rows.size() == send_rows.size() && send_rows[own] == receive_rows[own],
            "{} send counts and {} receive counts for {} ranks", send_rows.size(),
            receive_rows.size(), size_);
  SLX_CHECK(sum_rows(send_rows) == source.dim(0) && sum_rows(receive_rows) == result.dim(0) &&
                source.dtype() == result.dtype() && row_bytes(source) == row_bytes(result),
            "{} to {}", source.shape_text(), result.shape_text());
  const int64_t sent = sum_rows(send_rows.first(own)), got = sum_rows(receive_rows.first(own));
  tensor::copy_bytes(stream, result.rows(got, got + receive_rows[own]),
                     source.rows(sent, sent + send_rows[own]));
  if (!backend_) return;
  if (stream.is_planning) {  // while planning the counts need not match: one side has actual rows,
                             // the other the upper bound
    const int64_t bytes = std::min(source.size_bytes(), result.size_bytes());
    return backend_->plan_sent(bytes / size_ * (size_ - 1));
  }
  const CallScope scope(kAllToAll, name_, size_, source.size_bytes(), next_call());
  backend_->exchange(stream, list_messages(source, send_rows, rank_),
                     list_messages(result, receive_rows, rank_));
}

void Collective::send(Stream stream, Tensor data, int to) {
  check_tensor(stream, data);
  SLX_CHECK(0 <= to && to < size_ && to != rank_, "rank {} of {} sends to rank {}", rank_, size_,
            to);
  const Message message{to, bytes_of(data), data.size_bytes()};
  if (stream.is_planning) return backend_->plan_sent(data.size_bytes());
  const CallScope scope(kSend, name_, size_, data.size_bytes(),
                        {.group = id_, .rank = rank_, .peer = to});
  backend_->exchange(stream, {&message, 1}, {});
}

void Collective::receive(Stream stream, Tensor data, int from) {
  check_tensor(stream, data);
  SLX_CHECK(0 <= from && from < size_ && from != rank_, "rank {} of {} receives from rank {}",
            rank_, size_, from);
  const Message message{from, bytes_of(data), data.size_bytes()};
  if (stream.is_planning) return;
  const CallScope scope(kReceive, name_, size_, data.size_bytes(),
                        {.group = id_, .rank = rank_, .peer = from});
  backend_->exchange(stream, {}, {&message, 1});
}

std::unique_ptr<Collective> Collective::split(int color, int key) {
  SLX_CHECK_GE(color, 0);
  if (!backend_) return std::make_unique<Collective>();
  const CallScope scope(kSplit, name_, size_, 0, next_call());
  const uint64_t id = id_of_part(id_, ++num_parts_, color);
  return std::make_unique<Collective>(backend_->split(color, key), id);
}

std::unique_ptr<Collective> Collective::on_device(tensor::Device device) {
  if (!backend_) return nullptr;
  const CallScope scope(kOnDevice, name_, size_, 0, next_call());
  const uint64_t id = id_of_part(id_, ++num_parts_, 0);
  auto backend = backend_->on_device(device);
  return backend ? std::make_unique<Collective>(std::move(backend), id) : nullptr;
}

std::unique_ptr<SharedCounter> Collective::make_counter() {
  if (!backend_) return std::make_unique<CounterOfOne>();
  const CallScope scope(kMakeCounter, name_, size_, 0, next_call());
  return backend_->make_counter();
}

}  // namespace slimexx::dist
