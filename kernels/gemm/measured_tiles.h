// Products whose best tile was measured to beat the one of the cost model by more than 1.2 %, on an
// H200 (bench/kernels/gemm_bench sweep and pair): layers and heads of Qwen3-4B, Qwen3-8B and
// GLM-4-9B. Of the vocabularies only (151936, 4096) was timed, at 1, 8, 64 and 256 rows; the
// others follow it.
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
    {2560, 4096, 0, 16, {false, 64, 24, 1, 16, 2}},
    {2560, 4096, 16, 32, {false, 64, 40, 1, 16, 1}},
    {2560, 4096, 128, 256, {false, 64, 80, 1, 16, 1}},
    {2560, 9728, 0, 16, {false, 64, 24, 1, 16, 2}},
    {2560, 9728, 16, 32, {false, 64, 40, 1, 16, 1}},
    {4096, 4096, 64, 128, {true, 64, 64, 1, 1, 1}},
    {4096, 4096, 256, 384, {true, 128, 96, 1, 1, 1}},
    {4096, 4096, 512, 1024, {false, 128, 256, 1, 16, 1}},
    {4096, 12288, 32, 64, {true, 64, 32, 1, 1, 1}},
    {4096, 12288, 64, 128, {true, 64, 64, 1, 1, 1}},
    {4096, 12288, 256, 384, {true, 64, 192, 1, 1, 1}},
    {4096, 12288, 512, 1024, {true, 128, 128, 1, 1, 1}},
    {4096, 13696, 32, 64, {true, 64, 48, 1, 1, 1}},
    {4096, 13696, 64, 128, {true, 64, 64, 1, 1, 1}},
    {6144, 2560, 32, 64, {true, 64, 64, 1, 1, 1}},
    {19456, 2560, 0, 64, {false, 64, 160, 1, 16, 1}},
    {24576, 4096, 0, 128, {false, 64, 192, 1, 16, 1}},
    {27392, 4096, 0, 64, {false, 64, 208, 1, 16, 1}},
    {151552, 4096, 0, 64, {false, 64, 192, 1, 16, 1}},
    {151552, 4096, 192, 256, {false, 128, 192, 2, 16, 1, 0, 0, true}},
    {151936, 2560, 0, 64, {false, 64, 192, 1, 16, 1}},
    {151936, 2560, 192, 256, {false, 128, 192, 2, 16, 1, 0, 0, true}},
    {151936, 4096, 0, 64, {false, 64, 192, 1, 16, 1}},
    {151936, 4096, 192, 256, {false, 128, 192, 2, 16, 1, 0, 0, true}},
};

}  // namespace slimexx::kernels
