// Prints lines to standard error: "linnet: ..." and "linnet: warning: ...". The environment variable LINNET_LOG (info,
// warning, off; info by default) sets the lowest level printed.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include "base/fail.h"

namespace linnet {
void log_info(const std::string& message);
void log_warning(const std::string& message);
// Of several parts, as fail_user() takes them.
template <class First, class Second, class... Parts>
void log_info(const First& first, const Second& second, const Parts&... parts) {
  log_info(text_of_parts(first, second, parts...));
}
template <class First, class Second, class... Parts>
void log_warning(const First& first, const Second& second, const Parts&... parts) {
  log_warning(text_of_parts(first, second, parts...));
}
bool log_shows_info();  // whether log_info() prints; progress and samples are printed only then
// Prints nothing from now on. Of processes that train together only rank 0 prints.
void silence_log();

// One line at the bottom of a terminal, redrawn in place. It needs no escape sequences: a carriage return goes back to
// its beginning, and blanks cover the rest of a longer line.

class TerminalLine {
 public:
  // The environment variable that passes the terminal's columns to a process whose standard error is a pipe.
  static constexpr const char* kColumns = "LINNET_COLUMNS";

  TerminalLine();  // looks at standard error
  ~TerminalLine() { clear(); }
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // False if standard error is no terminal, or one that cannot redraw a line (TERM=dumb).
  bool usable() const { return usable_; }
  // The characters that fit: one less than the columns, as the cursor needs the last. Asks the terminal at every call.
  size_t room() const;
  void draw(std::string_view text);  // cut to room(); allocates nothing
  void clear();

 private:
  bool usable_;
  size_t drawn_ = 0;  // characters on the line
};

// Reports work that takes longer than about a second: a redrawn line at a terminal, one plain line elsewhere, nothing
// with LINNET_LOG=warning or off.
class Phase {
 public:
  static constexpr std::chrono::milliseconds kPatience{1000}, kLongPatience{10'000}, kRedraw{200};
  // `elsewhere`: how long work may take before the plain line; long for what is done again and again.
  explicit Phase(std::string what, std::chrono::milliseconds elsewhere = kPatience)
      : what_(std::move(what)), start_(Clock::now()), next_(start_ + (line_.usable() ? kPatience : elsewhere)) {}
  // Call it often: it rarely draws. Without a total it shows the count `done`, if above 0.
  void tick(int64_t done = 0, int64_t total = 0) {
    if (Clock::now() >= next_) show(done, total);
  }

 private:
  using Clock = std::chrono::steady_clock;
  void show(int64_t done, int64_t total);

  const std::string what_;
  TerminalLine line_;
  const Clock::time_point start_;
  Clock::time_point next_;
};
}  // namespace linnet
