// What a person sees while a run trains: one line that is redrawn at a terminal, a plain line now and then elsewhere.
#pragma once
#include <chrono>
#include <string>

namespace linnet {

struct ProgressView {
  int64_t step, max_steps;
  double loss, learning_rate, speed, seconds_left;
  double memory_mb;
  const char* items;  // what speed counts, in a second: "tokens", "images"
};

class ProgressBar {
 public:
  ProgressBar();  // looks at standard error
  ~ProgressBar() { clear(); }
  void update(const ProgressView& view);
  void clear();  // removes the bar, so that a line can be printed
  // A message between updates.
  void print(const std::string& line);

 private:
  bool terminal_;
  bool drawn_ = false;
  std::chrono::steady_clock::time_point last_;
};

}  // namespace linnet
