#include "dist/watch/rank_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace slimexx::dist {
namespace {

void* map_activity(int fd) {
  void* at = ::mmap(nullptr, sizeof(Activity), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return at == MAP_FAILED ? nullptr : at;
}

}  // namespace

// Allocates the page now: writing to a page without storage would raise SIGBUS.
std::unique_ptr<RankPage> RankPage::make(const std::string& name) {
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  void* at = ::posix_fallocate(fd, 0, sizeof(Activity)) == 0 ? map_activity(fd) : nullptr;
  ::close(fd);
  if (at != nullptr) return std::unique_ptr<RankPage>(new RankPage(new (at) Activity));
  forget_name(name);
  return nullptr;
}

std::unique_ptr<RankPage> RankPage::open(const std::string& name) {
  const int fd = ::shm_open(name.c_str(), O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) return nullptr;
  void* at = map_activity(fd);
  ::close(fd);
  if (at == nullptr) return nullptr;
  return std::unique_ptr<RankPage>(new RankPage(static_cast<Activity*>(at)));
}

RankPage::~RankPage() { ::munmap(activity_, sizeof(Activity)); }

void RankPage::forget_name(const std::string& name) { ::shm_unlink(name.c_str()); }

}  // namespace slimexx::dist
