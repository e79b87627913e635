#include "distributed/comm/agreement.h"
#include <gtest/gtest.h>
#include <functional>
#include "comm_testing.h"

namespace linnet {
namespace {
// The message that every rank throws; "" when none does.
std::string message_of_all(int ranks, const std::function<void(Communicator&)>& body) {
  std::vector<std::string> messages(static_cast<size_t>(ranks));
  testing::run_ranks(ranks, [&](Communicator& world) {
    try {
      body(world);
    } catch (const AgreedError& error) {
      messages[static_cast<size_t>(world.rank())] = error.what();
    }
  });
  for (const std::string& message : messages) EXPECT_EQ(message, messages[0]);
  return messages[0];
}

TEST(Agreement, AnErrorOfOneRankIsThatOfAll) {
  const auto message = message_of_all(3, [](Communicator& world) {
    run_on_all(world, [&] {
      if (world.rank() == 2) fail_user("no file 'a.txt'");
    });
  });
  EXPECT_EQ(message, "rank 2: no file 'a.txt'");
  EXPECT_EQ(message_of_all(3, [](Communicator& world) { run_on_all(world, [] {}); }), "");
}

TEST(Agreement, TellsWhatDiffers) {
  const auto message = message_of_all(2, [](Communicator& world) {
    check_equal(world, "configuration", world.rank() == 0 ? "seed = 1\nlr = 0.1\n" : "seed = 1\nlr = 0.2\n");
  });
  EXPECT_EQ(message, "rank 1 has another configuration than rank 0: lr = 0.2, not lr = 0.1");
  EXPECT_EQ(message_of_all(2, [](Communicator& world) { check_equal(world, "version", "1"); }), "");
}

TEST(Agreement, TextsOfEachRankReachAll) {
  testing::run_ranks(3, [](Communicator& world) {
    const std::string mine(static_cast<size_t>(world.rank()) * 1000, 'a');
    const std::vector<std::string> texts = gather_texts(world, mine);
    ASSERT_EQ(texts.size(), 3u);
    for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(texts[rank], std::string(rank * 1000, 'a'));
    EXPECT_TRUE(any_rank(world, world.rank() == 1));
    EXPECT_FALSE(any_rank(world, false));
    barrier(world);
  });
}
}  // namespace
}  // namespace linnet
