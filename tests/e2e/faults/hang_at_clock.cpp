// Preloaded into a rank. Once the file $SLX_HANG_AT exists, the main thread sleeps forever in its
// next C++ call for the time. The process lives, but computes nothing and is in no collective call,
// because MPI uses the C call.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

bool is_time_to_hang(const void* caller) {
  static const char* const kFile = std::getenv("SLX_HANG_AT");
  Dl_info library{};
  return kFile != nullptr && ::syscall(SYS_gettid) == ::getpid() && ::access(kFile, F_OK) == 0 &&
         ::dladdr(caller, &library) != 0 && std::strstr(library.dli_fname, "libstdc++") != nullptr;
}

}  // namespace

extern "C" int clock_gettime(clockid_t clock, timespec* time) noexcept {
  while (is_time_to_hang(__builtin_return_address(0))) ::pause();
  return static_cast<int>(::syscall(SYS_clock_gettime, clock, time));
}
