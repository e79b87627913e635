#include "distributed/simulate/network.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <span>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace linnet {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kBandwidths[] = {{"B/s", 1},          {"KB/s", 1e3},       {"MB/s", 1e6},       {"GB/s", 1e9},
                                {"TB/s", 1e12},      {"bit/s", 1.0 / 8},  {"Kbit/s", 1e3 / 8}, {"Mbit/s", 1e6 / 8},
                                {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
constexpr Unit kTimes[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};

bool equal_without_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) {
    return std::tolower(static_cast<unsigned char>(x)) == std::tolower(static_cast<unsigned char>(y));
  });
}

std::string_view trimmed(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (text.ends_with(' ')) text.remove_suffix(1);
  return text;
}

// The value of "25 GB/s"; below 0 where the text is not a number and one of the units.
double parse_quantity(std::string_view text, std::span<const Unit> units) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return -1;
  const std::string_view unit = trimmed(text.substr(static_cast<size_t>(end - text.data())));
  for (const Unit& known : units)
    if (equal_without_case(unit, known.name)) return value * known.factor;
  return -1;
}

std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> words;
  for (;;) {
    const size_t comma = std::min(text.find(','), text.size());
    words.push_back(trimmed(text.substr(0, comma)));
    if (comma == text.size()) return words;
    text.remove_prefix(comma + 1);
  }
}

// In the largest unit that leaves a number of at least 1.
std::string in_units(double value, std::initializer_list<Unit> descending) {
  const Unit* unit = descending.begin();
  while (unit + 1 != descending.end() && value < unit->factor) ++unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value / unit->factor);
  return text + std::string(unit->name);
}

}  // namespace

Network parse_network(const std::string& text, const std::string& option) {
  const std::string wanted = "; write bandwidth and latency, for example " + option + " 25GB/s,5us";
  const std::vector<std::string_view> words = split_at_commas(text);
  if (words.size() < 2 || words.size() > 3) fail_user(option + " \"" + text + "\" is not understood" + wanted);
  Network network{.bytes_per_second = parse_quantity(words[0], kBandwidths),
                  .latency = parse_quantity(words[1], kTimes)};
  if (network.bytes_per_second <= 0)
    fail_user(option + ": \"" + std::string(words[0]) + "\" is not a bandwidth such as 25GB/s or 100Gbit/s" + wanted);
  if (network.latency < 0)
    fail_user(option + ": \"" + std::string(words[1]) + "\" is not a latency such as 5us or 0.1ms" + wanted);
  if (words.size() == 3) {
    if (words[2] != "no-overlap")
      fail_user(option + ": \"" + std::string(words[2]) +
                "\" is not understood; the third word can only be no-overlap");
    network.overlaps = false;
  }
  return network;
}

std::string network_text(const Network& network) {
  return in_units(network.bytes_per_second, {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {"KB/s", 1e3}, {"B/s", 1}}) +
         "," + in_units(network.latency, {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}}) +
         (network.overlaps ? "" : ",no-overlap");
}

// From the smallest exchange to each other one, in seconds a byte: the median. A few sizes may be far from the line, as
// where a token bucket lets small messages pass at once, or where an MPI sends large ones in another way. Small
// messages may go another way, too, so that the line says little of the latency: that is no more than the fastest
// exchange took, and at least half of it.
Network fit_network(std::span<const TimedExchange> exchanges) {
  const auto smallest = std::ranges::min_element(exchanges, {}, &TimedExchange::bytes);
  std::vector<double> slopes;
  for (const TimedExchange& exchange : exchanges)
    if (exchange.bytes > smallest->bytes)
      slopes.push_back((exchange.seconds - smallest->seconds) / (exchange.bytes - smallest->bytes));
  if (slopes.empty()) fail_internal("a network is fitted to exchanges of one size");
  std::ranges::sort(slopes);
  const double slope = std::max(slopes[slopes.size() / 2], 1e-15);
  const double fastest = std::ranges::min_element(exchanges, {}, &TimedExchange::seconds)->seconds;
  return {.bytes_per_second = 1 / slope,
          .latency = std::clamp(smallest->seconds - slope * smallest->bytes, fastest / 2, fastest)};
}

double seconds_of(const Traffic& traffic, const Network& network) {
  return static_cast<double>(traffic.exchanges) * network.latency + traffic.port_bytes / network.bytes_per_second;
}

}  // namespace linnet
