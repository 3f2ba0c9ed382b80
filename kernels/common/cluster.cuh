// Thread block clusters, named barriers, register reallocation between warpgroups, and the
// instructions of programmatic dependent launch.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace slimexx::kernels {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// A barrier for all threads of all blocks of the cluster.
__device__ __forceinline__ void sync_cluster() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n"
      "barrier.cluster.wait.acquire.aligned;" ::
          : "memory");
}

// sync_cluster split into arrive and wait, between which a thread may do other work. The relaxed
// arrival does not make the thread's earlier writes visible to other threads.
__device__ __forceinline__ void arrive_at_cluster_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void await_cluster() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Barriers 1 to 15 are free for use; 0 is __syncthreads. `threads` counts all participants.
__device__ __forceinline__ void sync_named(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

__device__ __forceinline__ void arrive_named(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// True in one lane of a converged warp; lets the compiler know that the branch is warp-uniform.
__device__ __forceinline__ bool elect_lane() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred p;\n"
      "elect.sync _|p, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, p;\n"
      "}\n"
      : "=r"(elected));
  return elected != 0;
}

// setmaxnreg: all warps of a warpgroup must call these two functions. The kernel needs
// __launch_bounds__(threads, 1).
template <int kRegisters>
__device__ __forceinline__ void shrink_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void grow_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Lets the next kernel of the stream start, if it was launched to overlap with this kernel.
__device__ __forceinline__ void allow_next_grid() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until all earlier kernels are complete and their writes are visible. Returns at once in a
// kernel that was launched without overlap.
__device__ __forceinline__ void await_previous_grids() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

}  // namespace slimexx::kernels
