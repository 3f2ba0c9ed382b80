// Exchanges between tp ranks while products run that do not wait for them (Context::overlaps_tp):
// they are queued on the branch stream. Without that flag, and where there is nothing to exchange,
// rows are gathered where they are waited for, and a sum is made where it starts. Forward has the
// same bits either way: a row of a product does not depend on the others (numerics contract, N1).
//
// Legend as in row_parallel.h.
#pragma once
#include <optional>

#include "model/row_parallel.h"
#include "slimexx/ops/branch.h"

namespace slimexx::model {

// Rows of all tp ranks, from each rank's own.
class GatheredRows {
 public:
  // Starts. `own` [t,W] must not be written before wait() has returned.
  GatheredRows(const ops::Context& ctx, const Batch& batch, Tensor own);
  GatheredRows(const GatheredRows&) = delete;
  GatheredRows& operator=(const GatheredRows&) = delete;

  // [T,W], there for what is queued next. Has to be called before the context's arena is released.
  Tensor wait();
  // Calls product(rows, x) for ranges that are all rows together, where x [n,W] are those rows:
  // this rank's own first, while the others' come. Waits.
  template <class Product>
  void for_each_part(const Product& product);

 private:
  const ops::Context& ctx_;
  const Batch batch_;
  Tensor own_, all_;
  const bool is_beside_;
  tensor::Event passed_;
};

// This rank's rows of the sum of all tp ranks' terms.
class ScatteredSum {
 public:
  // The sum goes to `own` [t,W].
  ScatteredSum(const ops::Context& ctx, const Batch& batch, Tensor own);
  ScatteredSum(const ScatteredSum&) = delete;
  ScatteredSum& operator=(const ScatteredSum&) = delete;

  Tensor terms() const { return terms_; }  // [T,W] of this rank; `own` itself on one tp rank
  void start();                            // when terms() is there; it loses its content
  void wait();                             // `own` is there for what is queued next

 private:
  const ops::Context& ctx_;
  const Batch& batch_;
  Tensor own_, terms_, scratch_;
  const bool is_beside_;
  std::optional<ops::Branch> branch_;
};

template <class Product>
void GatheredRows::for_each_part(const Product& product) {
  const dist::Range own = own_rows(batch_, ctx_.groups);
  if (is_beside_ && own.size() > 0) product(own, own_);
  const Tensor all = wait();
  if (!is_beside_) return product(dist::Range{0, all.dim(0)}, all);
  for (const dist::Range& rows : {dist::Range{0, own.begin}, {own.end, all.dim(0)}})
    if (rows.size() > 0) product(rows, all.rows(rows.begin, rows.end));
}

}  // namespace slimexx::model
