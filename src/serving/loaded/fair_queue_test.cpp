#include <gtest/gtest.h>
#include "serving/loaded/workers.h"

namespace linnet {
namespace {
struct Order {
  std::string name;
  int turns;
};

// The names in the order in which they are served, one turn each.
std::string served(FairQueue<Order>& queue, int turns = 1000) {
  std::string names;
  for (; turns > 0 && !queue.empty(); --turns) {
    names += queue.front().name;
    queue.end_turn(--queue.front().turns == 0);
  }
  return names;
}

TEST(FairQueue, ClientsTakeTurnsAndSoDoTheirItems) {
  FairQueue<Order> queue;
  queue.push("first", {"a", 6});
  queue.push("first", {"b", 2});
  queue.push("second", {"c", 1});
  queue.push("third", {"d", 2});
  EXPECT_EQ(served(queue), "acdbdabaaaa");
}

TEST(FairQueue, OneThatComesLateWaitsForATurnOfEachOther) {
  FairQueue<Order> queue;
  queue.push("many", {"m", 64});
  EXPECT_EQ(served(queue, 3), "mmm");
  queue.push("one", {"o", 1});
  EXPECT_EQ(served(queue, 2), "mo");
  queue.push("many", {"p", 1});
  EXPECT_EQ(served(queue, 2), "mp");
  EXPECT_EQ(served(queue).size(), 64U - 5U);
}

TEST(FairQueue, RemovedItemsTakeNoTurn) {
  FairQueue<Order> queue;
  for (const char* name : {"a", "b", "c"}) queue.push(name == std::string("b") ? "second" : "first", {name, 1});
  queue.remove_if([](const Order& order) { return order.name != "c"; });
  EXPECT_EQ(served(queue), "c");
  EXPECT_TRUE(queue.empty());
  queue.push("first", {"d", 1});
  EXPECT_EQ(served(queue), "d");
}
}  // namespace
}  // namespace linnet
