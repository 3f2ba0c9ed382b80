// Tests arenas: order of release, growth, and borrowed memory.
#include <gtest/gtest.h>

#include <cstdint>

#include "slimexx/tensor/tensor.h"

namespace slimexx::tensor {
namespace {

TEST(Arena, GivesTheSameBytesAgainAfterARelease) {
  Arena arena({}, 1024, "test");
  const void* outer = arena.allocate(DType::kU8, {10}).raw();
  const void* inner = nullptr;
  {
    const ArenaScope scope(arena);
    inner = arena.allocate(DType::kU8, {100}).raw();
    EXPECT_EQ(arena.used_bytes(), 64 + 128);
  }
  EXPECT_EQ(arena.used_bytes(), 64);
  EXPECT_EQ(arena.allocate(DType::kU8, {1}).raw(), inner);
  EXPECT_NE(inner, outer);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(inner) % 64, 0u);
  EXPECT_DEATH(arena.release_to(arena.used_bytes() + 1), "mark");
  EXPECT_DEATH(arena.allocate(DType::kU8, {1024}), "needed");
}

TEST(Arena, ScopesOfSeveralShareTheirScratch) {
  Arena scratch({}, 256, "scratch"), first({}, 64, "first"), second({}, 128, "second");
  first.share_scratch(scratch);
  second.share_scratch(scratch);
  first.allocate(DType::kU8, {64});
  const void* used = nullptr;
  {
    const ArenaScope scope(first);
    used = first.allocate(DType::kU8, {192}).raw();
    const ArenaScope inner(first);
    first.allocate(DType::kU8, {64});
    EXPECT_DEATH(first.allocate(DType::kU8, {1}), "arena \"scratch\"");
    EXPECT_EQ(scratch.used_bytes(), 256);
    EXPECT_EQ(first.used_bytes(), 64);
  }
  EXPECT_EQ(scratch.used_bytes(), 0);
  EXPECT_EQ(first.used_bytes(), 64);
  {
    const ArenaScope scope(second);
    EXPECT_EQ(second.allocate(DType::kU8, {1}).raw(), used);
    EXPECT_EQ(second.used_bytes(), 0);
  }
  EXPECT_NE(second.allocate(DType::kU8, {128}).raw(), used);
  EXPECT_EQ(second.high_water_bytes(), 128);
  EXPECT_EQ(scratch.high_water_bytes(), 256);
  EXPECT_DEATH(first.share_scratch(second), "in use");
  first.release_to(0);
  EXPECT_DEATH(first.share_scratch(second), "as scratch");
}

TEST(Arena, ReserveGrowsAndNeverShrinks) {
  const auto before = allocation_counters({});
  Arena arena({}, 100, "test");
  const int64_t first = arena.capacity_bytes();
  EXPECT_GE(first, 100);
  arena.reserve(50);
  EXPECT_EQ(arena.capacity_bytes(), first);
  EXPECT_EQ(allocation_counters({}).num_allocations, before.num_allocations + 1);
  arena.reserve(1000);
  EXPECT_GE(arena.capacity_bytes(), 1000);
  EXPECT_EQ(allocation_counters({}).live_bytes, before.live_bytes + arena.capacity_bytes())
      << "the old memory is kept beside the new";
  const Tensor t = arena.allocate(DType::kU8, {1000});
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(t.data<uint8_t>()[i], 0) << i;
  EXPECT_DEATH(arena.reserve(2000), "in use");
}

TEST(Arena, BorrowsMemoryAndGivesItsOwnBack) {
  const auto before = allocation_counters({});
  {
    Buffer lender({}, 256, "lender");
    Arena arena({}, 4096, "test");
    arena.borrow(lender.view(DType::kU8, {256}));
    EXPECT_EQ(arena.capacity_bytes(), 256);
    EXPECT_EQ(allocation_counters({}).live_bytes, before.live_bytes + 256) << "kept its own";
    Tensor t = arena.allocate(DType::kU8, {256});
    EXPECT_EQ(t.raw(), lender.data());
    t.data<uint8_t>()[255] = 7;
    EXPECT_EQ(static_cast<const uint8_t*>(lender.data())[255], 7);
    EXPECT_DEATH(arena.borrow(lender.view(DType::kU8, {256})), "in use");
    EXPECT_DEATH(arena.allocate(DType::kU8, {1}), "needed");
    arena.release_to(0);
    arena.reserve(256);  // capacity suffices: keeps the borrowed memory
    EXPECT_EQ(arena.allocate(DType::kU8, {1}).raw(), lender.data());
    arena.release_to(0);
    arena.reserve(257);  // larger: allocates its own memory
    EXPECT_NE(arena.allocate(DType::kU8, {1}).raw(), lender.data());
    EXPECT_GE(arena.capacity_bytes(), 257);
  }
  EXPECT_EQ(allocation_counters({}).live_bytes, before.live_bytes)
      << "the loan was freed twice, or never";
}

TEST(Arena, BorrowsBytesOfItsDeviceOnly) {
  const Buffer lender({}, 256, "lender");
  Arena arena({}, 64, "test");
  EXPECT_DEATH(arena.borrow(lender.view(DType::kF32, {64})), "cannot borrow");
  EXPECT_DEATH(arena.borrow(lender.view(DType::kU8, {16, 16}).columns(0, 8)), "cannot borrow");
  Arena plan = Arena::for_planning({}, "plan");
  EXPECT_DEATH(plan.borrow(lender.view(DType::kU8, {256})), "in use");
}

}  // namespace
}  // namespace slimexx::tensor
