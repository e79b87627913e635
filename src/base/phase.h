// Tells what goes on before training when it takes longer than about a second: a line that is redrawn at a terminal,
// one plain line elsewhere. With LINNET_LOG=warning or off, nothing.
//
//   Phase phase("tokenizing");
//   for (...) phase.tick(done, total);
#pragma once
#include <chrono>
#include <cstdint>
#include <string>

#include "base/terminal_line.h"

namespace linnet {

class Phase {
 public:
  explicit Phase(std::string what) : what_(std::move(what)), start_(Clock::now()), next_(start_ + kPatience) {}
  // Call it often: it looks at the clock, and seldom draws. Without a total it counts what is done, if anything.
  void tick(int64_t done = 0, int64_t total = 0) {
    if (Clock::now() >= next_) show(done, total);
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kPatience{1000}, kRedraw{200};
  void show(int64_t done, int64_t total);

  const std::string what_;
  const Clock::time_point start_;
  Clock::time_point next_;
  TerminalLine line_;
};

}  // namespace linnet
