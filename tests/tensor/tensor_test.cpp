#include "slimexx/tensor/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "slimexx/base/error.h"
#include "slimexx/base/host_memory.h"

namespace slimexx::tensor {
namespace {

TEST(DType, HalfRoundTripsEveryFiniteValue) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto h = static_cast<uint16_t>(bits);
    const float f = f16_to_f32(h);
    if (std::isnan(f)) {
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(f))));
    } else {
      EXPECT_EQ(f32_to_f16(f), h) << bits;
    }
    const float b = bf16_to_f32(h);
    if (!std::isnan(b)) {
      EXPECT_EQ(f32_to_bf16(b), h) << bits;
    }
  }
}

TEST(DType, Fp8Values) {
  EXPECT_EQ(f8_e4m3_to_f32(0x00), 0);
  EXPECT_TRUE(std::signbit(f8_e4m3_to_f32(0x80)));
  EXPECT_EQ(f8_e4m3_to_f32(0x01), 0x1p-9f);
  EXPECT_EQ(f8_e4m3_to_f32(0x07), 7 * 0x1p-9f);
  EXPECT_EQ(f8_e4m3_to_f32(0x08), 0x1p-6f);
  EXPECT_EQ(f8_e4m3_to_f32(0x38), 1);
  EXPECT_EQ(f8_e4m3_to_f32(0xB9), -1.125f);
  EXPECT_EQ(f8_e4m3_to_f32(0x7E), 448);
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(f8_e4m3_to_f32(0xFF)));
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(f32_to_f16(65519.0f), 0x7BFF);
  EXPECT_EQ(f32_to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(f32_to_f16(0x1p-25f), 0);  // half the smallest subnormal: a tie, rounds to even (0)
  EXPECT_EQ(f32_to_f16(0x1.8p-25f), 1);
  EXPECT_EQ(f32_to_f16(1.0f + 0x1p-11f), 0x3C00);
  EXPECT_EQ(f32_to_f16(1.0f + 0x1.8p-10f), 0x3C02);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(f32_to_bf16(1.0f + 0x1.8p-7f), 0x3F82);
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7F80);
}

TEST(Tensor, ViewsShareMemory) {
  Buffer buffer({}, 24 * 4, "test");
  Tensor t = buffer.view(DType::kF32, {4, 6});
  Tensor column = t.columns(2, 5);
  EXPECT_FALSE(column.is_contiguous());
  column.rows(1, 2).f32()[0] = 3;
  EXPECT_EQ(t.f32()[8], 3);
  EXPECT_EQ(t.reshaped({2, 12}).dim(1), 12);
  EXPECT_EQ(t.shape_text(), "[4, 6] F32");
}

TEST(Arena, PlansWhatItAllocates) {
  const auto layout = [](Arena& arena) {
    arena.allocate(DType::kF32, {100});
    ArenaScope scope(arena);
    arena.allocate(DType::kBF16, {3, 1000});
  };
  Arena plan = Arena::for_planning({}, "plan");
  layout(plan);
  Arena real({}, plan.high_water_bytes(), "real");
  layout(real);
  EXPECT_EQ(real.high_water_bytes(), plan.high_water_bytes());
  EXPECT_EQ(real.used_bytes(), 448);
}

TEST(Buffer, CountsAndRefusesImpossibleSizes) {
  const auto before = allocation_counters({});
  {
    Buffer a({}, 1000, "test");
    EXPECT_EQ(allocation_counters({}).live_bytes, before.live_bytes + 1000);
    Buffer b = std::move(a);
  }
  EXPECT_EQ(allocation_counters({}).live_bytes, before.live_bytes);
  EXPECT_THROW(Buffer({}, int64_t{1} << 60, "too much"), Error);
}

// Linux would overcommit this memory and kill the program when it writes to it.
TEST(Buffer, RefusesMoreThanTheHostHasFree) {
  const HostMemory host = host_memory();
  ASSERT_GT(host.total_bytes, host.free_bytes);
  const auto refusal = [](const auto& allocate) {
    try {
      allocate();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("allocated");
  };
  const int64_t bytes = host.total_bytes - (int64_t{1} << 20);
  const std::string buffer = refusal([&] { Buffer({}, bytes, "gradients"); });
  EXPECT_NE(buffer.find("not enough host memory for gradients"), std::string::npos) << buffer;
  const std::string staging = refusal([&] { StagingBuffer({}, bytes, "a copy"); });
  EXPECT_NE(staging.find("not enough host memory for a copy"), std::string::npos) << staging;
}

}  // namespace
}  // namespace slimexx::tensor
