#include <gtest/gtest.h>
#include <vector>
#include "distributed/simulate/training_step.h"
#include "error_of.h"

namespace linnet {
namespace {
std::string problem(const std::string& text) {
  return error_of([&] { parse_network(text); });
}

TEST(Network, ReadsBandwidthAndLatency) {
  const Network network = parse_network("25GB/s,5us");
  EXPECT_DOUBLE_EQ(network.bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(network.latency, 5e-6);
  EXPECT_TRUE(network.overlaps);
  EXPECT_DOUBLE_EQ(parse_network("100 gbit/s, 0.2ms").bytes_per_second, 12.5e9);
  EXPECT_DOUBLE_EQ(parse_network("100 gbit/s, 0.2ms").latency, 2e-4);
  EXPECT_FALSE(parse_network("2.5GB/s,40us,no-overlap").overlaps);
}

TEST(Network, TextsAreReadBack) {
  for (const char* text : {"25GB/s,5us", "900MB/s,1.5ms", "3.25TB/s,250ns", "2.5GB/s,40us,no-overlap"})
    EXPECT_EQ(network_text(parse_network(text)), text);
}

TEST(Network, TypingErrorsAreOneLineThatNamesThem) {
  EXPECT_EQ(problem("25GB,5us"),
      "--network: \"25GB\" is not a bandwidth such as 25GB/s or 100Gbit/s; write bandwidth and latency, for "
      "example --network 25GB/s,5us");
  for (const auto& [text, part] : {std::pair{"25GB/s", "25GB/s"}, {"25GB/s,5", "\"5\""}, {"0GB/s,5us", "\"0GB/s\""},
           {"25GB/s,-1us", "\"-1us\""}, {"25GB/s,5us,slow", "\"slow\""}, {"", "\"\""}, {"infGB/s,5us", "infGB/s"}})
    EXPECT_PRED2(has_text, problem(text), part) << text;
}

TEST(Network, TimeIsLatencyOfEachExchangeAndBytesThroughThePort) {
  EXPECT_DOUBLE_EQ(
      seconds_of({.exchanges = 3, .port_bytes = 1e9}, {.bytes_per_second = 2e9, .latency = 1e-3}), 0.5 + 3e-3);
}

TEST(Network, IsFittedToMeasuredExchanges) {
  std::vector<TimedExchange> exchanges;
  for (double bytes = 1024; bytes < 1e8; bytes *= 4) {
    const double noise = exchanges.size() % 2 == 0 ? 1.02 : 0.98;
    exchanges.push_back({bytes, noise * (20e-6 + bytes / 3e9)});
  }
  const Network network = fit_network(exchanges);
  EXPECT_NEAR(network.latency, 20e-6, 1e-6);
  EXPECT_NEAR(network.bytes_per_second, 3e9, 0.1e9);
}

// Small messages pass a token bucket at once, and the largest are sent at half the speed.
TEST(Network, IsFittedToWhatMostExchangesTake) {
  const Network network = fit_network(std::vector<TimedExchange>{{1e3, 17e-6}, {4e3, 34e-6}, {16e3, 340e-6},
      {64e3, 1.3e-3}, {256e3, 5.2e-3}, {1e6, 20e-3}, {4e6, 80e-3}, {16e6, 640e-3}, {64e6, 2.6}});
  EXPECT_NEAR(network.bytes_per_second, 50e6, 2e6);
}

// Between half of it and all of it, whatever the line through the other sizes says.
TEST(Network, LatencyIsThatOfTheFastestExchange) {
  std::vector<TimedExchange> exchanges{{1e3, 0.7e-6}, {4e3, 3.8e-6}, {16e3, 15e-6}, {64e3, 60e-6}, {1e6, 935e-6}};
  EXPECT_GE(fit_network(exchanges).latency, 0.35e-6);
  exchanges[0].seconds = 1.8e-3;  // the machine was busy
  EXPECT_LE(fit_network(exchanges).latency, 3.8e-6);
}
}  // namespace
}  // namespace linnet
