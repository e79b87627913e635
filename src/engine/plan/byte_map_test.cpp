// The map of bytes beside an array that remembers the owner of each byte.
#include "engine/plan/byte_map.h"
#include <gtest/gtest.h>
#include <random>

namespace linnet {
namespace {
constexpr size_t kBytes = 400;

class Reference {
 public:
  template <class Body> static void each(const ByteRows& bytes, const Body& body) {
    for (size_t row = 0; row < bytes.rows; ++row)
      for (size_t i = 0; i < bytes.width; ++i) body(bytes.begin + row * bytes.pitch + i);
  }
  void write(const ByteRows& bytes, ValueId owner) {
    each(bytes, [&](size_t byte) { owners_[byte] = owner; });
  }
  bool holds(const ByteRows& bytes, ValueId most) const {
    bool all = true;
    each(bytes, [&](size_t byte) { all = all && owners_[byte] >= 0 && owners_[byte] <= most; });
    return all;
  }
  bool touches(const ByteRows& bytes) const {
    bool any = false;
    each(bytes, [&](size_t byte) { any = any || owners_[byte] >= 0; });
    return any;
  }

 private:
  std::vector<ValueId> owners_ = std::vector<ValueId>(kBytes, -1);
};

// Few pitches and columns, so that grids are met again, whole, in part and shifted.
ByteRows random_bytes(std::mt19937& random) {
  const auto draw = [&](size_t most) { return std::uniform_int_distribution<size_t>(0, most)(random); };
  const size_t pitch = std::vector<size_t>{8, 8, 12, 16, 5}[draw(4)];
  const size_t width = draw(3) == 0 ? pitch : 1 + draw(pitch - 1);
  const size_t most = (kBytes - width) / pitch;
  const size_t rows = draw(2) == 0 ? 1 : 1 + draw(most > 20 ? 20 : most - 1);
  const size_t room = kBytes - ((rows - 1) * pitch + width);
  const size_t begin = draw(1) == 0 ? draw(room) : draw(room / 8) * 8;
  return {begin, rows, pitch, rows == 1 && draw(1) == 0 ? draw(kBytes - begin) : width};
}

TEST(ByteMap, TellsWhatAnArrayOfBytesTells) {
  std::mt19937 random(1);
  int held = 0, touched = 0, asked = 0;
  for (int run = 0; run < 300; ++run) {
    ByteMap map;
    Reference reference;
    for (int step = 0; step < 40; ++step) {
      const ByteRows written = random_bytes(random);
      const ValueId owner = static_cast<ValueId>(random() % 4);
      map.write(written, owner);
      reference.write(written, owner);
      for (int i = 0; i < 10; ++i, ++asked) {
        const ByteRows bytes = i == 0 ? written : random_bytes(random);
        const auto most = static_cast<ValueId>(random() % 4);
        const bool holds = reference.holds(bytes, most), touches = reference.touches(bytes);
        ASSERT_EQ(map.holds(bytes, [&](ValueId id) { return id <= most; }), holds) << run << ", " << step;
        ASSERT_EQ(map.touches(bytes), touches) << run << ", " << step;
        held += holds, touched += touches;
      }
    }
  }
  EXPECT_GT(held, asked / 10);
  EXPECT_LT(held, asked * 9 / 10);
  EXPECT_LT(touched, asked);
}

TEST(ByteMap, ColumnsOfAMatrixAreApart) {
  ByteMap map;
  const ByteRows whole{0, 1, 0, 4096 * 64}, left{0, 4096, 64, 32}, right{32, 4096, 64, 32};
  const auto is = [](ValueId want) { return [want](ValueId owner) { return owner == want; }; };
  map.write(whole, 1);
  map.write(right, 2);
  EXPECT_TRUE(map.holds(left, is(1)));
  EXPECT_TRUE(map.holds(right, is(2)));
  EXPECT_FALSE(map.holds(whole, is(1)));
  map.write({64 * 2000 + 40, 1, 0, 1}, 3);  // one byte in the middle
  EXPECT_TRUE(map.holds(left, is(1)));
  EXPECT_FALSE(map.holds(right, is(2)));
  EXPECT_TRUE(map.holds({32, 2000, 64, 32}, is(2)));
}
}  // namespace
}  // namespace linnet
