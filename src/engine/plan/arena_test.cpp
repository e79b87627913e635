#include <gtest/gtest.h>
#include <random>
#include "engine/plan/plan.h"

namespace linnet {
namespace {
TEST(Arena, BlocksAliveTogetherNeverMeet) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < 60; ++i) {
      const auto first = static_cast<int32_t>(random() % 100);
      blocks.push_back({random() % 5000, first, first + static_cast<int32_t>(random() % 30)});
    }
    const ArenaSize size = place_blocks(blocks);
    EXPECT_GE(size.bytes, size.lower_bound);
    for (const ArenaBlock& a : blocks) {
      EXPECT_LE(a.offset + a.bytes, size.bytes);
      EXPECT_EQ(a.offset % 256, 0u);
      for (const ArenaBlock& b : blocks) {
        if (&a == &b || a.bytes == 0 || b.bytes == 0 || a.first > b.last || b.first > a.last) continue;
        EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
      }
    }
  }
}

TEST(Arena, BlocksThatFollowEachOtherShareMemory) {
  std::vector<ArenaBlock> blocks{{768, 0, 1}, {768, 2, 3}, {768, 4, 5}};
  EXPECT_EQ(place_blocks(blocks).bytes, 768u);
}

TEST(Arena, PartsAliveTogetherNeverMeet) {
  std::mt19937 random(8);
  for (int round = 0; round < 50; ++round) {
    std::vector<ArenaBlock> blocks;
    for (int i = 0; i < 40; ++i) {
      const auto first = static_cast<int32_t>(random() % 100);
      ArenaBlock block{0, first, first + 30};
      const size_t parts = 1 + random() % 5;
      for (size_t part = 0; part < parts; ++part) {
        const size_t bytes = 1 + random() % 900;
        block.parts.push_back({block.bytes, block.bytes + bytes, first + static_cast<int32_t>(part * (random() % 8))});
        block.bytes += bytes;
      }
      blocks.push_back(block);
    }
    const ArenaSize size = place_blocks(blocks);
    EXPECT_GE(size.bytes, size.lower_bound);
    for (size_t i = 0; i < blocks.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        for (const ArenaPart& a : blocks[i].parts)
          for (const ArenaPart& b : blocks[j].parts)
            if (a.first <= blocks[j].last && b.first <= blocks[i].last) {
              EXPECT_TRUE(blocks[i].offset + a.end <= blocks[j].offset + b.begin ||
                          blocks[j].offset + b.end <= blocks[i].offset + a.begin);
            }
  }
}

TEST(Arena, BytesOfALaterPartAreUsedBeforeIt) {
  // Gradients of two layers, the second's first; meanwhile the first layer's activation waits.
  std::vector<ArenaBlock> blocks{{1536, 10, 30, {{0, 768, 20}, {768, 1536, 10}}}, {768, 0, 15}};
  EXPECT_EQ(place_blocks(blocks).bytes, 1536u);
  EXPECT_EQ(blocks[1].offset, blocks[0].offset);
}

TEST(Arena, ALayeredNetworkComesCloseToTheLowerBound) {
  // Forward activations kept until their backward: alive [i, 2L - i], with a temporary at each step.
  std::vector<ArenaBlock> blocks;
  const int layers = 24;
  for (int i = 0; i < layers; ++i) {
    blocks.push_back({7680, i, 2 * layers - i});
    blocks.push_back({25600, i, i + 1});
    blocks.push_back({25600, 2 * layers - i, 2 * layers - i + 1});
  }
  const ArenaSize size = place_blocks(blocks);
  EXPECT_LE(static_cast<double>(size.bytes), 1.15 * static_cast<double>(size.lower_bound));
}

TEST(Arena, ActivationsLieInGradientsOfTheLayersBelow) {
  // Gradients of all layers are one block, filled from the last layer to the first, and a layer's activations, a large
  // and several small ones, live until its gradient is written.
  const int layers = 12;
  std::vector<ArenaBlock> blocks{{0, 2 * layers, 4 * layers}};
  for (int i = 0; i < layers; ++i) {
    const int backward = 4 * layers - 2 * i;
    blocks[0].parts.push_back({blocks[0].bytes, blocks[0].bytes + 28288, backward});
    blocks[0].bytes += 28288;
    for (const size_t bytes : {12544u, 9408u, 3136u, 3136u, 3136u, 3136u}) blocks.push_back({bytes, i, backward});
  }
  blocks[0].first = blocks[0].parts.back().first, blocks[0].last = 4 * layers + 1;
  const ArenaSize size = place_blocks(blocks);
  EXPECT_LE(static_cast<double>(size.bytes), 1.08 * static_cast<double>(size.lower_bound));
}
}  // namespace
}  // namespace linnet
