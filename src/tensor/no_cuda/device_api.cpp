#include "tensor/device_api.h"

#include "slimexx/base/error.h"

namespace slimexx::tensor::device_api {
namespace {

[[noreturn]] void refuse() {
  throw Error(ErrorCode::kEnvironment, "this build has no CUDA",
              "use --device cpu, or build with -DSLX_WITH_CUDA=ON on a host with nvcc");
}

}  // namespace

int count_devices() { return 0; }
void make_current(int) { refuse(); }
void* allocate(int, int64_t) { refuse(); }
void release(int, void*) noexcept {}
MemoryState memory_state(int) { refuse(); }
DeviceReport report(int) { refuse(); }
void* allocate_host(int64_t) { refuse(); }
void release_host(void*) noexcept {}
bool lock_pages(void*, int64_t) { refuse(); }
void unlock_pages(void*) noexcept {}
void* compute_stream(int) { refuse(); }
void* side_stream(int) { refuse(); }
void* branch_stream(int) { refuse(); }
void synchronize(int, void*) { refuse(); }
void copy_to_device(int, void*, void*, const void*, int64_t) { refuse(); }
void copy_to_host(int, void*, void*, const void*, int64_t) { refuse(); }
void copy_on_device(int, void*, void*, const void*, int64_t) { refuse(); }
void copy_rows_on_device(int, void*, StridedBytes, StridedBytes, int64_t, int64_t) { refuse(); }
void* make_event() { refuse(); }
void release_event(void*) noexcept {}
void record_event(void*, void*) { refuse(); }
void make_stream_wait(void*, void*) { refuse(); }
void synchronize_event(void*) { refuse(); }

}  // namespace slimexx::tensor::device_api
