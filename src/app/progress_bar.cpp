#include "app/progress_bar.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace linnet {
namespace {

constexpr size_t kBarWidth = 24;

// A line in the making, without allocation: the training thread draws it between two steps.
using Text = std::array<char, 256>;

void add_duration(Text& text, size_t& size, double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 3.6e9));
  const auto add = [&](auto format, auto... values) {
    size = std::min<size_t>(fmt::format_to_n(text.data() + size, text.size() - size, format, values...).size + size,
                            text.size());
  };
  if (s >= 3600)
    add(FMT_STRING("{}:{:02}:{:02} left"), s / 3600, s / 60 % 60, s % 60);
  else
    add(FMT_STRING("{}:{:02} left"), s / 60, s % 60);
}

size_t write_figures(Text& text, const ProgressView& v) {
  size_t size = fmt::format_to_n(text.data(), text.size(),
                                 FMT_STRING("step {}/{}  loss {:.4f}  lr {:.2e}  {:.0f} {}/s  {:.0f} MB  "), v.step,
                                 v.max_steps, v.loss, v.learning_rate, v.speed, v.items, v.memory_mb)
                    .size;
  size = std::min(size, text.size());
  add_duration(text, size, v.seconds_left);
  return size;
}

std::array<char, kBarWidth + 1> bar(const ProgressView& v) {
  const auto filled = static_cast<size_t>(kBarWidth * static_cast<double>(v.step) /
                                          static_cast<double>(std::max<int64_t>(1, v.max_steps)));
  std::array<char, kBarWidth + 1> text{};
  for (size_t i = 0; i < kBarWidth; ++i) text[i] = i < filled ? '=' : ' ';
  return text;
}

size_t terminal_width() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
}

}  // namespace

ProgressBar::ProgressBar()
    : terminal_(isatty(STDERR_FILENO) != 0), last_(std::chrono::steady_clock::now() - std::chrono::hours(1)) {}

void ProgressBar::update(const ProgressView& view) {
  const auto now = std::chrono::steady_clock::now();
  const auto wait = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < wait && view.step < view.max_steps) return;
  last_ = now;
  Text text;
  const size_t size = write_figures(text, view);
  if (!terminal_) {
    std::fprintf(stderr, "%.*s\n", static_cast<int>(size), text.data());
    return;
  }
  const size_t room = std::max<size_t>(terminal_width(), kBarWidth + 4) - kBarWidth - 4;
  std::fprintf(stderr, "\r[%s] %.*s\033[K", bar(view).data(), static_cast<int>(std::min(size, room)), text.data());
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
