// Rates and memory of devices by kind. This table is the only place for such numbers: the draft
// gate and `slimexx plan` read it. Rates are those that kernels reach (docs/performance.md), not
// those of a data sheet, unless a comment says so.
//
// Rates are not measured at start, because measured rates differ from run to run. The draft gate
// decides from the rates how many tokens to draft, and drafts affect when requests finish. With the
// table the same run makes the same drafts.
#pragma once
#include <compare>
#include <cstdint>
#include <span>
#include <string>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {

// Time per layer of a decode step in which its kernels wait for one another and read nothing, in
// seconds. A layer waits for the sum of the entries that apply to it.
struct LayerWaits {
  double layer = 0;             // every layer
  double experts = 0;           // more if its MLP has experts
  double latent_attention = 0;  // more if its attention is latent
  auto operator<=>(const LayerWaits&) const = default;
};

// The rates that the draft gate reads.
struct DecodeRates {
  double copy_bytes_per_s = 0;  // as in DeviceKind
  LayerWaits waits = {};
  auto operator<=>(const DecodeRates&) const = default;
};

// Rates of the bf16 products of a model family, in FLOP/s.
struct ProductRates {
  double train = 0;    // forward and backward (3 x forward), without recompute
  double prefill = 0;  // forward of prompts
};

// Optimizer updates in host memory, in bytes per second for all ranks of a host together:
// `of_rank` times the number of ranks, within [least, most].
struct HostUpdateRates {
  double of_rank = 0, least = 0, most = 0;
};

// A kind of GPU, or the CPU, whose rates are 0: nothing estimates times of the CPU.
struct DeviceKind {
  std::string name;              // "h200"
  std::string title;             // "NVIDIA H200 (141 GB)"
  std::string driver_name = {};  // the name that the driver reports for such a device
  bool is_measured = false;      // false: scaled from the H200 by the data sheets

  int64_t memory_bytes = 0;  // as the driver reports it; 0: no limit
  int64_t driver_bytes = 0;  // held by driver and libraries
  int64_t nccl_bytes = 0;    // held in addition if there are several ranks

  double sheet_bytes_per_s = 0;  // memory, from the data sheet
  double sheet_flop_per_s = 0;   // dense bf16 products, from the data sheet
  double copy_bytes_per_s = 0;   // copy within device memory, bytes read plus bytes written
  double decode_copy_share = 0;  // share of copy_bytes_per_s at which decode steps read memory
  double update_copy_share = 0;  // share of copy_bytes_per_s at which AdamW runs on the device
  LayerWaits layer_waits = {};   // of decode steps
  ProductRates dense = {};       // models of dense layers
  ProductRates experts = {};     // experts over grouped-query attention
  ProductRates latent_attention = {};  // latent attention, with or without experts
  double decode_flop_per_s = 0;        // products of a decode step with many rows
  double recompute_share = 0;          // speed of training with full recompute relative to none
  HostUpdateRates host_updates = {};   // optimizer in host memory

  int gpus_per_host = 8;           // connected by NVLink; for the CPU: ranks per host
  double nvlink_bytes_per_s = 0;   // sent by a rank in a collective within a host
  double network_bytes_per_s = 0;  // sent by a rank between hosts: an estimate
  // Latency of an all-reduce or all-gather in a recorded step, by kernels that access the other
  // ranks' memory. Up to low_latency_bytes per rank use the low-latency protocol: a sequence number
  // in every word, which doubles the bytes but needs no other synchronization.
  double exchange_seconds = 0, low_latency_seconds = 0, low_latency_bytes = 0;
  // Dispatch or combine of experts: added for every doubling of the ranks beyond two, in seconds.
  double expert_doubling_seconds = 0;
  double exposed_gradients =
      0;  // share of the gradients' reduce-scatter that backward does not hide

  bool is_cpu() const { return name == "cpu"; }
  DecodeRates decode_rates() const { return {copy_bytes_per_s, layer_waits}; }
  // Memory that one of num_ranks ranks holds before it allocates anything.
  int64_t held_bytes(int num_ranks) const {
    return driver_bytes + (num_ranks > 1 ? nccl_bytes : 0);
  }
};

// All kinds; the first is the default, from which the others are scaled. The last is the CPU.
std::span<const DeviceKind> list_device_kinds();
// The kind with this name, ignoring case; null if there is none.
const DeviceKind* find_device_kind(const std::string& name);

// What the driver reports about a GPU.
struct DeviceReport {
  std::string name;               // "NVIDIA H200"
  double memory_bytes_per_s = 0;  // memory clock x bus width x 2; 0: unknown
};
// The table's rates if it has a kind with the reported name. Other GPUs have the default's rates;
// if the report has a bandwidth, the copy rate is scaled to this bandwidth. The first such GPU of a
// process is logged.
DecodeRates decode_rates_of(const DeviceReport& report);
// The rates of a device of this process.
DecodeRates read_decode_rates(Device device);

}  // namespace slimexx::tensor
