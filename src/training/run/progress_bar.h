// What a person sees while a run trains: one line that is redrawn at a terminal, a plain line now and then elsewhere.
// With LINNET_LOG=warning or off, nothing.
#pragma once
#include <chrono>
#include <string>

#include "base/terminal_line.h"

namespace linnet {

struct ProgressView {
  int64_t step, max_steps;
  double loss, learning_rate, speed, seconds_left;
  double memory_mb;
  const char* items;  // what speed counts, in a second: "tokens", "images"
};

class ProgressBar {
 public:
  ProgressBar();
  void update(const ProgressView& view);
  void clear() { line_.clear(); }  // removes the bar, so that a line can be printed
  // A message between updates.
  void print(const std::string& line);

 private:
  TerminalLine line_;
  const bool shown_;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace linnet
