// Tracks the holders of each page of the KV cache. A page is in one of three states:
//   free   no holder, content is worthless
//   held   one or more sequences refer to it (counted)
//   idle   no holder, but the prefix cache may find its content again
// Idle pages are ordered by the time of their release; the oldest is evicted first.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace slimexx::rollout {

using PageId = int32_t;
inline constexpr PageId kNoPage = -1;

class PagePool {
 public:
  explicit PagePool(int64_t num_pages);

  // A free page, held once from now on; kNoPage if there is none.
  PageId take_free();
  void retain(PageId page);  // one more holder of a held or idle page
  // Removes one holder. Without holders the page is idle if `keep_content`, otherwise free.
  void release(PageId page, bool keep_content);
  PageId oldest_idle() const;  // kNoPage if none
  void free_idle(PageId page);

  int32_t num_holders(PageId page) const { return holders_[static_cast<size_t>(page)]; }
  bool is_idle(PageId page) const { return next_[static_cast<size_t>(page)] != kNoPage; }
  int64_t num_pages() const { return static_cast<int64_t>(holders_.size()); }
  int64_t num_free() const { return static_cast<int64_t>(free_.size()); }
  int64_t num_idle() const { return num_idle_; }
  int64_t num_held() const { return num_pages() - num_free() - num_idle_; }

 private:
  void link_newest(PageId page);
  void unlink(PageId page);

  std::vector<int32_t> holders_;
  std::vector<PageId> free_;  // a stack: the page freed last is taken first
  // Doubly linked ring of the idle pages. The id num_pages() marks the end of the ring; its next_
  // is the oldest page. kNoPage marks a page that is not in the ring.
  std::vector<PageId> previous_, next_;
  int64_t num_idle_ = 0;
};

}  // namespace slimexx::rollout
