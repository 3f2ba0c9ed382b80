#include "train/passes/mtp_copies.h"

#include <fmt/format.h>

#include <algorithm>

#include "slimexx/base/log.h"
#include "slimexx/dist/host.h"

namespace slimexx::train {
namespace {

using tensor::Tensor;

constexpr int64_t kRowsAtOnce = 4096;

bool are_equal(const ops::Context& ctx, const Tensor& a, const Tensor& b) {
  std::vector<char> bytes_of_a, bytes_of_b;
  for (int64_t begin = 0; begin < a.dim(0); begin += kRowsAtOnce) {
    const int64_t end = std::min(begin + kRowsAtOnce, a.dim(0));
    const Tensor rows_of_a = a.rows(begin, end), rows_of_b = b.rows(begin, end);
    bytes_of_a.resize(static_cast<size_t>(rows_of_a.size_bytes()));
    bytes_of_b.resize(bytes_of_a.size());
    tensor::download(ctx.stream, bytes_of_a.data(), rows_of_a);
    tensor::download(ctx.stream, bytes_of_b.data(), rows_of_b);
    if (bytes_of_a != bytes_of_b) return false;
  }
  return true;
}

}  // namespace

MtpCopies::MtpCopies(const model::ModelSpec& spec, const model::ParameterStore& store) {
  const auto weight_of = [&](const std::string& name) {
    const model::ParameterId id = store.find(name);
    return id == model::kNoParameter ? Tensor{} : store.weight(id);
  };
  for (size_t i = 0; i < spec.mtp.size(); ++i) {
    if (!spec.mtp[i].is_trained) continue;
    const int64_t layer = spec.num_layers() + static_cast<int64_t>(i);
    const auto add = [&](const char* own, const char* on_disk, const char* original) {
      copies_.push_back({.name = fmt::format("model.layers.{}.{}", layer, on_disk),
                         .copy = weight_of(fmt::format("layers.{}.{}", layer, own)),
                         .original = weight_of(original)});
    };
    if (spec.mtp[i].has_own_embedding)
      add("embedding.weight", "embed_tokens.weight", "embedding.weight");
    if (spec.mtp[i].has_own_head)
      add("head.weight", "shared_head.head.weight",
          spec.tied_embeddings ? "embedding.weight" : "lm_head.weight");
  }
}

void MtpCopies::find_equal(const ops::Context& ctx, dist::Collective& host) {
  if (is_checked_ || copies_.empty()) return;
  is_checked_ = true;
  std::vector<double> differ;
  for (const Copy& c : copies_)
    differ.push_back(c.copy.defined() && !are_equal(ctx, c.copy, c.original) ? 1 : 0);
  dist::all_reduce_max(host, differ);
  for (size_t i = 0; i < copies_.size(); ++i) {
    copies_[i].follows = differ[i] == 0;
    if (!copies_[i].follows && host.rank() == 0)
      log_info("{} differs from the model's own tensor: it stays as loaded", copies_[i].name);
  }
}

void MtpCopies::follow(const ops::Context& ctx) const {
  for (const Copy& c : copies_)
    if (c.follows && c.copy.defined()) tensor::copy_bytes(ctx.stream, c.copy, c.original);
}

}  // namespace slimexx::train
