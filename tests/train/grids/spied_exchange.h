// A group that records the calls and forwards them to another group.
#pragma once
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "dist/backend.h"
#include "slimexx/base/check.h"

namespace slimexx::train {

class SpiedBackend : public dist::Backend {
 public:
  using OnCall = std::function<void(std::span<const dist::Range>)>;
  // `on_call` gets the ranges of every f32 reduce-scatter and all-gather before it runs.
  // `is_queued` is what the group reports about itself.
  SpiedBackend(dist::Collective& ranks, bool is_queued, OnCall on_call)
      : ranks_(ranks),
        is_queued_(is_queued),
        on_call_(std::move(on_call)),
        scratch_(ranks.device(), int64_t{16} << 20, "spied exchange") {}
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  tensor::Device device() const override { return ranks_.device(); }
  bool is_queued() const override { return is_queued_; }
  bool reduces() const override { return true; }

  void reduce_scatter_sum(tensor::Stream stream, tensor::Tensor data,
                          std::span<const dist::Range> ranges) override {
    on_call_(ranges);
    ranks_.reduce_scatter_sum(stream, scratch_, data, ranges, dist::SumOrder::kAny);
  }
  void all_gather_ranges(tensor::Stream stream, char* data,
                         std::span<const dist::Range> ranges) override {
    std::vector<dist::Range> elements;
    int64_t size_bytes = 0;
    for (const dist::Range& r : ranges) {
      elements.push_back({r.begin / 4, r.end / 4});
      size_bytes = std::max(size_bytes, r.end);
    }
    on_call_(elements);
    const tensor::Tensor bytes(data, tensor::DType::kU8, stream.device, {size_bytes});
    ranks_.all_gather_ranges(stream, bytes, ranges);
  }

  void barrier() override { ranks_.barrier(); }
  void broadcast(tensor::Stream, char*, int64_t, int) override { refuse(); }
  void exchange(tensor::Stream, std::span<const dist::Message>,
                std::span<const dist::Message>) override {
    refuse();
  }
  void all_reduce(tensor::Stream, tensor::Tensor, dist::Combine) override { refuse(); }
  std::unique_ptr<Backend> split(int, int) override { return refuse(); }
  std::unique_ptr<dist::SharedCounter> make_counter() override { return refuse(); }

 private:
  static std::nullptr_t refuse() {
    SLX_CHECK(false, "a training step asks for sums and gathers only");
    return nullptr;
  }
  dist::Collective& ranks_;
  bool is_queued_;
  OnCall on_call_;
  tensor::Arena scratch_;
};

}  // namespace slimexx::train
