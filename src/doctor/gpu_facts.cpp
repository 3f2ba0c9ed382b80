#include "doctor/gpu_facts.h"

#ifdef SLX_WITH_CUDA
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cctype>
#include <fstream>

#include "slimexx/tensor/cuda_check.h"
#else
#include "slimexx/base/check.h"
#endif

namespace slimexx::doctor {

#ifdef SLX_WITH_CUDA
namespace {

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  SLX_CUDA(cudaDeviceGetAttribute(&value, which, index));
  return value;
}

int numa_node_of(std::string pci) {
  std::ranges::transform(pci, pci.begin(),
                         [](char c) { return static_cast<char>(std::tolower(c)); });
  std::ifstream file("/sys/bus/pci/devices/" + pci + "/numa_node");
  int node = -1;
  return file >> node ? node : -1;
}

// Counts peers with native atomics as NVLink peers, because only NVLink supports these.
void count_peers(int index, GpuFacts& facts) {
  for (int other = 0; other < tensor::count_cuda_devices(); ++other) {
    if (other == index) continue;
    ++facts.num_peers;
    int linked = 0;
    SLX_CUDA(cudaDeviceGetP2PAttribute(&linked, cudaDevP2PAttrNativeAtomicSupported, index, other));
    facts.num_nvlink_peers += linked;
  }
}

}  // namespace

bool build_has_cuda() { return true; }

GpuFacts read_gpu_facts(tensor::Device device) {
  GpuFacts facts;
  cudaDeviceProp properties{};
  SLX_CUDA(cudaGetDeviceProperties(&properties, device.index));
  facts.name = properties.name;
  char pci[32] = "";
  SLX_CUDA(cudaDeviceGetPCIBusId(pci, sizeof pci, device.index));
  facts.pci = pci;
  facts.capability = 10 * attribute(cudaDevAttrComputeCapabilityMajor, device.index) +
                     attribute(cudaDevAttrComputeCapabilityMinor, device.index);
  SLX_CUDA(cudaDriverGetVersion(&facts.driver));
  SLX_CUDA(cudaRuntimeGetVersion(&facts.runtime));
  facts.numa_node = numa_node_of(facts.pci);
  const tensor::DeviceMemory memory = tensor::device_memory(device);
  facts.total_bytes = memory.total_bytes;
  facts.free_bytes = memory.free_bytes;
  count_peers(device.index, facts);
  return facts;
}
#else
bool build_has_cuda() { return false; }

GpuFacts read_gpu_facts(tensor::Device) {
  SLX_CHECK(false, "a build without CUDA has no GPU");
  return {};
}
#endif

}  // namespace slimexx::doctor
