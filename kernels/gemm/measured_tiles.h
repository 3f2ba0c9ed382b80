// Products whose best tile was measured to beat the one of the cost model by more than 1.2 %, on an
// H200 (bench/kernels/gemm_bench sweep): layers of Qwen3-4B, Qwen3-8B and GLM-4-9B.
#pragma once
#include "slimexx/kernels/gemm.h"

namespace slimexx::kernels {

struct MeasuredTile {
  int64_t n;
  int64_t k;
  int64_t above;  // m > above
  int64_t most;   // m <= most
  GemmConfig config;
};

constexpr MeasuredTile kMeasuredTiles[] = {
    {2560, 4096, 0, 64, {false, 64, 40, 1, 16, 1}},
    {2560, 4096, 96, 128, {true, 64, 48, 1, 1, 1}},
    {2560, 4096, 384, 512, {false, 64, 160, 1, 16, 1}},
    {2560, 9728, 0, 64, {false, 64, 40, 1, 16, 1}},
    {2560, 9728, 384, 512, {false, 64, 160, 1, 16, 1}},
    {4096, 4096, 0, 1, {true, 64, 48, 1, 1, 1}},
    {4096, 4096, 1, 8, {false, 64, 40, 1, 16, 1}},
    {4096, 4096, 8, 16, {true, 64, 48, 1, 1, 1}},
    {4096, 4096, 16, 64, {true, 64, 64, 1, 1, 1}},
    {4096, 4096, 512, 1024, {false, 128, 256, 1, 16, 1}},
    {4096, 12288, 0, 1, {true, 64, 64, 1, 1, 1}},
    {4096, 12288, 1, 32, {true, 64, 48, 1, 1, 1}},
    {4096, 12288, 512, 1024, {true, 128, 128, 1, 1, 1}},
    {4096, 13696, 0, 8, {true, 64, 48, 1, 1, 1}},
    {4608, 4096, 0, 64, {true, 64, 64, 1, 1, 1}},
    {4608, 4096, 64, 128, {false, 64, 96, 1, 16, 1}},
    {6144, 2560, 0, 8, {false, 64, 64, 1, 16, 1}},
    {6144, 2560, 8, 16, {true, 64, 64, 1, 1, 1}},
    {6144, 2560, 16, 48, {false, 64, 64, 1, 16, 1}},
    {6144, 4096, 0, 16, {false, 64, 64, 1, 16, 1}},
    {6144, 4096, 16, 32, {false, 64, 48, 1, 16, 1}},
    {6144, 4096, 32, 48, {true, 64, 64, 1, 1, 1}},
    {6144, 4096, 224, 256, {false, 64, 192, 1, 16, 1}},
    {19456, 2560, 160, 192, {false, 192, 192, 1, 16, 1}},
    {24576, 4096, 1, 8, {false, 64, 192, 1, 16, 1}},
    {24576, 4096, 16, 32, {false, 64, 64, 1, 16, 1}},
    {27392, 4096, 0, 8, {true, 64, 48, 1, 1, 1}},
};

}  // namespace slimexx::kernels
