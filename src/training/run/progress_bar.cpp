#include <fmt/format.h>
#include <algorithm>
#include <climits>
#include <cstdio>
#include "training/run/run_reporter.h"

namespace linnet {
namespace {
constexpr size_t kLongestBar = 24, kShortestBar = 8;

// Large enough to draw without an allocation between two steps.
using Text = fmt::basic_memory_buffer<char, 320>;

template <class... Values>
void write(Text& text, fmt::format_string<const Values&...> format, const Values&... values) {
  fmt::format_to(std::back_inserter(text), format, values...);
}

std::string_view shown_text(const Text& text) { return {text.data(), text.size()}; }

void add_duration(Text& text, double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 3.6e9));
  if (s >= 3600) write(text, "{}:{:02}:{:02} left", s / 3600, s / 60 % 60, s % 60);
  else write(text, "{}:{:02} left", s / 60, s % 60);
}

// One figure of the line. If space is short, figures of the highest rank are left out.
struct Figure {
  int rank;
  Text text = Text();
};

std::array<Figure, 6> figures_of(const ProgressView& v) {
  std::array<Figure, 6> figures{Figure{0}, {2}, {5}, {3}, {4}, {1}};
  write(figures[0].text, "step {}/{}", v.step, v.max_steps);
  write(figures[1].text, "loss {:.4f}", v.loss);
  write(figures[2].text, "lr {:.2e}", v.learning_rate);
  write(figures[3].text, "{:.0f} {}/s", v.speed, v.items);
  write(figures[4].text, "{:.0f} MB", v.memory_mb);
  add_duration(figures[5].text, v.seconds_left);
  return figures;
}

void add_bar(Text& line, const ProgressView& v, size_t width) {
  const double share = static_cast<double>(v.step) / static_cast<double>(std::max<int64_t>(1, v.max_steps));
  const auto filled = static_cast<size_t>(static_cast<double>(width) * std::clamp(share, 0.0, 1.0));
  write(line, "[{:=<{}}{:<{}}] ", "", filled, "", width - filled);
}

void add_figures(Text& line, const std::array<Figure, 6>& figures, int shown) {
  const char* gap = "";
  for (const Figure& figure : figures)
    if (figure.rank < shown) write(line, "{}{}", std::exchange(gap, "  "), shown_text(figure.text));
}

// The figures that fit in `room` characters, and before them a bar if at least a short one fits.
Text progress_line(const ProgressView& v, size_t room) {
  constexpr size_t kGap = 2, kFrame = 3;
  const std::array<Figure, 6> figures = figures_of(v);
  size_t used = 0;
  int shown = 0;  // ranks below this one
  while (shown < static_cast<int>(figures.size())) {
    const auto next = std::ranges::find(figures, shown, &Figure::rank);
    const size_t more = next->text.size() + (shown > 0 ? kGap : 0);
    if (shown > 0 && used + more > room) break;
    used += more, ++shown;
  }
  Text line;
  if (used + kFrame + kShortestBar <= room) add_bar(line, v, std::min(kLongestBar, room - used - kFrame));
  add_figures(line, figures, shown);
  return line;
}
}  // namespace

ProgressBar::ProgressBar()
    : shown_(log_shows_info()), last_(std::chrono::steady_clock::now() - std::chrono::hours(1)) {}

void ProgressBar::update(const ProgressView& view) {
  if (!shown_) return;
  const auto now = std::chrono::steady_clock::now();
  const auto wait = line_.usable() ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < wait && view.step < view.max_steps) return;
  last_ = now;
  if (line_.usable()) return line_.draw(shown_text(progress_line(view, line_.room())));
  Text line;
  add_figures(line, figures_of(view), INT_MAX);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.size()), line.data());
}

void ProgressBar::print(const std::string& line) {
  if (!shown_) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}
}  // namespace linnet
