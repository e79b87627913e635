// Plain lines for the user on standard error: "linnet: ..." and "linnet: warning: ...". The environment variable
// LINNET_LOG (info, warning, off; info by default) says from which level on.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace linnet {

void log_info(const std::string& message);
void log_warning(const std::string& message);
// Does log_info() print? Progress and samples follow it.
bool log_shows_info();
// From now on nothing is printed: of processes that train together only the first one tells what happens.
void silence_log();

// The one line at the bottom of a terminal that is redrawn while something goes on. It needs no escape sequences: a
// carriage return goes back to its beginning, and blanks cover what is left of a longer line.

class TerminalLine {
 public:
  // The columns of the terminal that standard error is passed on to, in the environment of a process whose standard
  // error is a pipe.
  static constexpr const char* kColumns = "LINNET_COLUMNS";

  TerminalLine();  // looks at standard error
  ~TerminalLine() { clear(); }
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  // False when standard error is no terminal, or one that cannot redraw a line (TERM=dumb).
  bool usable() const { return usable_; }
  // Characters that fit: one less than the columns, because the cursor needs the last one. Looked up at every call.
  size_t room() const;
  // Draws `text`, which is cut to room(). Allocates nothing.
  void draw(std::string_view text);
  void clear();

 private:
  bool usable_;
  size_t drawn_ = 0;  // characters on the line
};

// Tells what goes on before training when it takes longer than about a second: a line that is redrawn at a terminal,
// one plain line elsewhere. With LINNET_LOG=warning or off, nothing.
//
//   Phase phase("tokenizing");
//   for (...) phase.tick(done, total);

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
