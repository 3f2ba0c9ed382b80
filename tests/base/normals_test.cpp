#include "slimexx/base/normals.h"

#include <gtest/gtest.h>

#include <bit>
#include <string>
#include <vector>

namespace slimexx {
namespace {

void expect_bits(const std::vector<float>& got, const std::vector<float>& expected,
                 const std::string& what) {
  ASSERT_EQ(got.size(), expected.size());
  int64_t differing = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::bit_cast<uint32_t>(got[i]) == std::bit_cast<uint32_t>(expected[i])) continue;
    if (++differing <= 3)
      ADD_FAILURE() << what << ", number " << i << ": " << got[i] << ", expected " << expected[i];
  }
  EXPECT_EQ(differing, 0) << what << ", of " << got.size();
}

// About 20 of the normals are so near the midpoint of two floats that the fast path recomputes
// them.
TEST(Normals, FillHasTheBitsOfTheStream) {
  for (const uint64_t block : {uint64_t{0}, uint64_t{5}, uint64_t{0xffffff80}}) {
    for (const size_t n : {1u, 2u, 511u, 512u, 513u, 1200001u}) {
      PhiloxStream stream(0x123456789abcdef0u, 0xfedcba9876543210u);
      stream.seek_block(block);
      std::vector<float> expected(n), got(n, -1.0f);
      for (float& value : expected) value = static_cast<float>(0.02 * stream.next_normal());
      fill_normals(0x123456789abcdef0u, 0xfedcba9876543210u, block, 0.02, got);
      expect_bits(got, expected, "from block " + std::to_string(block));
    }
  }
}

// Words at the zeros and extrema of the logarithm and the cosine, with scales that give denormals,
// zeros and infinities.
TEST(Normals, EdgesHaveTheBitsOfTheLibrary) {
  std::vector<uint32_t> words;
  for (const uint32_t middle : {0u, 1u << 29, 1u << 30, 3u << 29, 1u << 31, 5u << 29, 3u << 30,
                                7u << 29, 0xb504f333u /* sqrt(1/2) */}) {
    for (uint32_t k = 0; k < 64; ++k) words.push_back(middle + k - 32);
  }
  std::vector<uint32_t> u, v;
  for (const uint32_t first : words)
    for (const uint32_t second : words) u.push_back(first), v.push_back(second);
  for (const double scale : {1.0, 0.02, -0.5, 1e-40, 1e38, 0.0}) {
    std::vector<float> expected, got(u.size());
    for (size_t i = 0; i < u.size(); ++i)
      expected.push_back(static_cast<float>(scale * normal_of_words(u[i], v[i])));
    normals_of_words(u, v, scale, got);
    expect_bits(got, expected, "scale " + std::to_string(scale));
  }
}

}  // namespace
}  // namespace slimexx
