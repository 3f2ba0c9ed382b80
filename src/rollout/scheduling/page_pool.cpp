#include "rollout/scheduling/page_pool.h"

#include "slimexx/base/check.h"

namespace slimexx::rollout {

PagePool::PagePool(int64_t num_pages)
    : holders_(static_cast<size_t>(num_pages), 0),
      previous_(static_cast<size_t>(num_pages) + 1, kNoPage),
      next_(previous_) {
  previous_.back() = next_.back() = static_cast<PageId>(num_pages);
  free_.reserve(holders_.size());
  for (int64_t page = num_pages - 1; page >= 0; --page) free_.push_back(static_cast<PageId>(page));
}

PageId PagePool::oldest_idle() const { return num_idle_ > 0 ? next_.back() : kNoPage; }

PageId PagePool::take_free() {
  if (free_.empty()) return kNoPage;
  const PageId page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::retain(PageId page) {
  int32_t& holders = holders_[static_cast<size_t>(page)];
  if (holders == 0) {
    SLX_CHECK(is_idle(page), "page {} is free", page);
    unlink(page);
  }
  ++holders;
}

void PagePool::release(PageId page, bool keep_content) {
  int32_t& holders = holders_[static_cast<size_t>(page)];
  SLX_CHECK_GT(holders, 0);
  if (--holders > 0) return;
  if (keep_content) {
    link_newest(page);
  } else {
    free_.push_back(page);
  }
}

void PagePool::free_idle(PageId page) {
  SLX_CHECK(is_idle(page), "page {}", page);
  unlink(page);
  free_.push_back(page);
}

void PagePool::link_newest(PageId page) {
  const auto end = static_cast<PageId>(num_pages());
  const auto at = static_cast<size_t>(page);
  previous_[at] = previous_.back();
  next_[at] = end;
  next_[static_cast<size_t>(previous_.back())] = page;
  previous_.back() = page;
  ++num_idle_;
}

void PagePool::unlink(PageId page) {
  const auto at = static_cast<size_t>(page);
  next_[static_cast<size_t>(previous_[at])] = next_[at];
  previous_[static_cast<size_t>(next_[at])] = previous_[at];
  previous_[at] = next_[at] = kNoPage;
  --num_idle_;
}

}  // namespace slimexx::rollout
