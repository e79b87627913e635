#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <climits>
#include <cstdio>
#include "training/run/run_reporter.h"

namespace linnet {
namespace {

constexpr size_t kLongestBar = 24, kShortestBar = 8;

// A text in the making, without allocation: the training thread draws between two steps.
class Text {
 public:
  template <class Format, class... Values>
  void add(Format format, const Values&... values) {
    const size_t room = text_.size() - size_;
    size_ += std::min(room, fmt::format_to_n(text_.data() + size_, room, format, values...).size);
  }
  void add(std::string_view text) { add(FMT_STRING("{}"), text); }
  std::string_view text() const { return {text_.data(), size_}; }

 private:
  std::array<char, 320> text_;
  size_t size_ = 0;
};

Text duration(double seconds) {
  const auto s = static_cast<int64_t>(std::clamp(seconds, 0.0, 3.6e9));
  Text text;
  if (s >= 3600) text.add(FMT_STRING("{}:{:02}:{:02} left"), s / 3600, s / 60 % 60, s % 60);
  else text.add(FMT_STRING("{}:{:02} left"), s / 60, s % 60);
  return text;
}

// One figure of the line. Where there is not room for all, those of the highest rank are left out.
struct Figure {
  Text text;
  int rank;
};

std::array<Figure, 6> figures_of(const ProgressView& v) {
  std::array<Figure, 6> figures{Figure{{}, 0}, {{}, 2}, {{}, 5}, {{}, 3}, {{}, 4}, {duration(v.seconds_left), 1}};
  figures[0].text.add(FMT_STRING("step {}/{}"), v.step, v.max_steps);
  figures[1].text.add(FMT_STRING("loss {:.4f}"), v.loss);
  figures[2].text.add(FMT_STRING("lr {:.2e}"), v.learning_rate);
  figures[3].text.add(FMT_STRING("{:.0f} {}/s"), v.speed, v.items);
  figures[4].text.add(FMT_STRING("{:.0f} MB"), v.memory_mb);
  return figures;
}

void add_bar(Text& line, const ProgressView& v, size_t width) {
  const double share = static_cast<double>(v.step) / static_cast<double>(std::max<int64_t>(1, v.max_steps));
  const auto filled = static_cast<size_t>(static_cast<double>(width) * std::clamp(share, 0.0, 1.0));
  line.add(FMT_STRING("[{:=<{}}{:<{}}] "), "", filled, "", width - filled);
}

// Those of a rank below `shown`.
void add_figures(Text& line, const std::array<Figure, 6>& figures, int shown) {
  const char* gap = "";
  for (const Figure& figure : figures)
    if (figure.rank < shown) line.add(FMT_STRING("{}{}"), std::exchange(gap, "  "), figure.text.text());
}

// The figures that fit in `room` characters, and in front of them a bar, where at least a short one fits.
Text progress_line(const ProgressView& v, size_t room) {
  constexpr size_t kGap = 2, kFrame = 3;
  const std::array<Figure, 6> figures = figures_of(v);
  size_t used = 0;
  int shown = 0;  // ranks below this one
  while (shown < static_cast<int>(figures.size())) {
    const auto next = std::ranges::find(figures, shown, &Figure::rank);
    const size_t more = next->text.text().size() + (shown > 0 ? kGap : 0);
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
  if (line_.usable()) return line_.draw(progress_line(view, line_.room()).text());
  Text line;
  add_figures(line, figures_of(view), INT_MAX);
  std::fprintf(stderr, "%.*s\n", static_cast<int>(line.text().size()), line.text().data());
}

void ProgressBar::print(const std::string& line) {
  if (!shown_) return;
  clear();
  std::fprintf(stderr, "%s\n", line.c_str());
  std::fflush(stderr);
}

}  // namespace linnet
