#include "base/log.h"
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include "base/process.h"

namespace linnet {
namespace {
enum class Level { kInfo, kWarning, kOff };

Level level_from_environment() {
  const std::string level = environment("LINNET_LOG");
  if (level == "off") return Level::kOff;
  return level == "warning" ? Level::kWarning : Level::kInfo;
}

std::atomic<Level>& level() {
  static std::atomic<Level> current = level_from_environment();
  return current;
}

std::atomic<size_t> redrawn = 0;  // characters of the redrawn line at the terminal

// One write for the whole line, so that lines of several threads do not mix. It takes the redrawn line's place.
void print(const char* begin, const std::string& message) {
  const std::string blanks(redrawn.exchange(0), ' ');
  const std::string line = (blanks.empty() ? "" : "\r" + blanks + "\r") + begin + message + "\n";
  std::fwrite(line.data(), 1, line.size(), stderr);
  std::fflush(stderr);
}

constexpr size_t kLongest = 300;

// 0: unset
size_t told_columns() { return std::strtoul(environment(TerminalLine::kColumns).c_str(), nullptr, 10); }

bool can_redraw() { return (isatty(STDERR_FILENO) != 0 || told_columns() > 1) && environment("TERM") != "dumb"; }
}  // namespace

bool log_shows_info() { return level() == Level::kInfo; }
void silence_log() { level() = Level::kOff; }
void log_info(const std::string& message) {
  if (log_shows_info()) print("linnet: ", message);
}
void log_warning(const std::string& message) {
  if (level() != Level::kOff) print("linnet: warning: ", message);
}

TerminalLine::TerminalLine() : usable_(can_redraw()) {}

size_t TerminalLine::room() const {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    return std::min<size_t>(size.ws_col, kLongest) - 1;
  return std::min<size_t>(told_columns() > 1 ? told_columns() : 80, kLongest) - 1;
}

void TerminalLine::draw(std::string_view text) {
  if (!usable_) return;
  const size_t room = this->room();
  text = text.substr(0, room);
  char line[kLongest + 2] = {'\r'};
  text.copy(line + 1, text.size());
  const size_t end = std::max(text.size(), std::min(drawn_, room));
  std::fill(line + 1 + text.size(), line + 1 + end, ' ');
  std::fwrite(line, 1, end + 1, stderr);
  std::fflush(stderr);
  redrawn = drawn_ = text.size();
}

void TerminalLine::clear() {
  if (drawn_ == 0) return;
  draw("");
  std::fputc('\r', stderr);
  std::fflush(stderr);
}

void Phase::show(int64_t done, int64_t total) {
  const auto now = Clock::now();
  next_ = now + kRedraw;
  if (!log_shows_info() || !line_.usable()) {
    log_info(what_ + " ...");
    next_ = Clock::time_point::max();  // once is enough
    return;
  }
  std::string text = what_;
  if (total > 0) text += " " + std::to_string(100 * done / total) + "%";
  else if (done > 0) text += " " + std::to_string(done);
  line_.draw(
      text + "  " + std::to_string(std::chrono::duration_cast<std::chrono::seconds>(now - start_).count()) + " s");
}
}  // namespace linnet
