#include "app/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

namespace linnet {
namespace {

constexpr int kBarWidth = 24;

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::max(0.0, seconds));
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string figures(const ProgressView& v) {
  return fmt::format("step {}/{}  loss {:.4f}  lr {:.2e}  {:.0f} tokens/s  {:.0f} MB  {} left", v.step, v.max_steps, v.loss,
                     v.learning_rate, v.tokens_per_second, v.memory_mb, duration(v.seconds_left));
}

std::string bar(const ProgressView& v) {
  const auto filled = static_cast<int>(kBarWidth * v.step / std::max<int64_t>(1, v.max_steps));
  return "[" + std::string(static_cast<size_t>(filled), '=') + std::string(static_cast<size_t>(kBarWidth - filled), ' ') + "] ";
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar() : terminal_(isatty(STDERR_FILENO) != 0), last_(std::chrono::steady_clock::now() - std::chrono::hours(1)) {}

void ProgressBar::update(const ProgressView& view) {
  const auto now = std::chrono::steady_clock::now();
  const auto wait = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < wait && view.step < view.max_steps) return;
  last_ = now;
  if (!terminal_) {
    std::fprintf(stderr, "%s\n", figures(view).c_str());
    return;
  }
  std::string line = bar(view) + figures(view);
  line.resize(std::min(line.size(), terminal_width() - 1));
  std::fprintf(stderr, "\r%s\033[K", line.c_str());
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressBar::clear() {
  if (drawn_) std::fprintf(stderr, "\r\033[K");
  drawn_ = false;
}

void ProgressBar::print(const std::string& line) {
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace linnet
