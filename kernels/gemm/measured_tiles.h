// Products whose best tile beat the cost model's choice by more than 1.2 % when measured on an H200
// (bench/kernels/gemm_bench sweep and pair): layers and heads of Qwen3-4B, Qwen3-8B and GLM-4-9B.
// For LM heads only (151936, 4096) was timed, at 1, 8, 64 and 256 rows; the other heads use the
// same tiles.
#pragma once
#include <cstdint>

#include "kernels/gemm/configs.h"

namespace slimexx::kernels {

struct MeasuredTile {
  int64_t n;
  int64_t k;
  int64_t above;  // m > above
  int64_t most;   // m <= most
  GemmConfig config;
};

constexpr MeasuredTile kMeasuredTiles[] = {
    {2560, 4096, 0, 16, two_per_sm(plain_tile(64, 24))},
    {2560, 4096, 16, 32, plain_tile(64, 40)},
    {2560, 4096, 128, 256, plain_tile(64, 80)},
    {2560, 9728, 0, 16, two_per_sm(plain_tile(64, 24))},
    {2560, 9728, 16, 32, plain_tile(64, 40)},
    {4096, 4096, 64, 128, swapped_tile(64, 64)},
    {4096, 4096, 256, 384, swapped_tile(128, 96)},
    {4096, 4096, 512, 1024, plain_tile(128, 256)},
    {4096, 12288, 32, 64, swapped_tile(64, 32)},
    {4096, 12288, 64, 128, swapped_tile(64, 64)},
    {4096, 12288, 256, 384, swapped_tile(64, 192)},
    {4096, 12288, 512, 1024, swapped_tile(128, 128)},
    {4096, 13696, 32, 64, swapped_tile(64, 48)},
    {4096, 13696, 64, 128, swapped_tile(64, 64)},
    {6144, 2560, 32, 64, swapped_tile(64, 64)},
    {19456, 2560, 0, 64, plain_tile(64, 160)},
    {24576, 4096, 0, 128, plain_tile(64, 192)},
    {27392, 4096, 0, 64, plain_tile(64, 208)},
    {151552, 4096, 0, 64, plain_tile(64, 192)},
    {151552, 4096, 192, 256, ping_pong_tile(192)},
    {151936, 2560, 0, 64, plain_tile(64, 192)},
    {151936, 2560, 192, 256, ping_pong_tile(192)},
    {151936, 4096, 0, 64, plain_tile(64, 192)},
    {151936, 4096, 192, 256, ping_pong_tile(192)},
};

}  // namespace slimexx::kernels
