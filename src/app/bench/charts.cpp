#include <fmt/format.h>
#include <algorithm>
#include "app/bench/bench.h"
#include "base/text.h"

namespace linnet {
extern const char* const kChartStyle;  // chart.css

namespace {
constexpr double kBarsWidth = 760, kLabels = 120, kTexts = 190, kRow = 17, kBar = 11, kHead = 24, kGap = 8;

constexpr size_t kColors = 7;

// `style`: more attributes.
std::string text_at(
    double x, double y, const std::string& text, const char* anchor = "start", const std::string& style = "") {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" {}>{}</text>\n", x, y, anchor, style, html_escaped(text));
}

constexpr double kKneeShare = 0.9;

// The largest batch up to kMost whose plan is within the limit. Memory is almost proportional to the batch: two
// plans estimate it, and further steps are at most a 64th of the batch.
int64_t largest_batch(
    const std::string& workload, WorkloadOptions options, const MeasureOptions& measuring, uint64_t limit) {
  const auto bytes = [&](int64_t batch) {
    options.batch = batch;
    return planned_bytes(make_workload(workload, options), measuring);
  };
  constexpr int64_t kSecond = 8;
  const auto one = static_cast<double>(bytes(1)), more = static_cast<double>(bytes(kSecond));
  if (one > static_cast<double>(limit)) return 0;
  const double each = std::max((more - one) / (kSecond - 1), 1.0);
  const double guess = 1 + (static_cast<double>(limit) - one) / each;
  auto batch = static_cast<int64_t>(std::clamp(guess, 1.0, static_cast<double>(BatchSweep::kMost)));
  const auto step = [&] { return std::max<int64_t>(1, batch / 64); };
  while (batch > 1 && bytes(batch) > limit) batch -= step();
  while (batch + step() <= BatchSweep::kMost && bytes(batch + step()) <= limit) batch += step();
  return batch;
}

int64_t knee_of(const std::vector<BatchPoint>& points) {
  const double most = max_of<double>(points, [&](const BatchPoint& point) { return point.measured.median; });
  for (const BatchPoint& point : points)
    if (point.measured.median >= kKneeShare * most) return point.batch;
  return 0;
}

constexpr const char* kGray = "fill=\"#333\"";
constexpr double kWidth = 640, kHeight = 360, kLeft = 70, kRight = 70, kTop = 40, kBottom = 50;

// A curve over equally spaced batches, from 0 to its highest value.
struct Curve {
  std::vector<double> values;
  const char* color;
};

double x_of(size_t i, size_t count) {
  return kLeft +
         (kWidth - kLeft - kRight) * (count > 1 ? static_cast<double>(i) / static_cast<double>(count - 1) : 0.5);
}

double y_of(double value, double most) { return kHeight - kBottom - (kHeight - kTop - kBottom) * value / most; }

std::string curve_svg(const Curve& curve) {
  const double most = std::max(*std::ranges::max_element(curve.values), 1e-9);
  std::string points, dots;
  for (size_t i = 0; i < curve.values.size(); ++i) {
    const double x = x_of(i, curve.values.size()), y = y_of(curve.values[i], most);
    points += fmt::format("{}{:.1f},{:.1f}", i ? " " : "", x, y);
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3\" fill=\"{}\"/>\n", x, y, curve.color);
  }
  return fmt::format(
      "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n{}", points, curve.color, dots);
}
}  // namespace

std::string bar_chart(const std::string& title, const std::vector<BarGroup>& groups) {
  std::vector<std::string> labels;
  std::string body = text_at(12, 22, title, "start", "class=\"title\"");
  double y = kTop;
  for (const BarGroup& group : groups) {
    body += text_at(12, y + 14, group.name, "start", "class=\"group\"");
    y += kHead;
    const double most = max_of<double>(group.bars, &Bar::value);
    for (const Bar& bar : group.bars) {
      const auto found = std::ranges::find(labels, bar.label);
      const auto color = static_cast<size_t>(found - labels.begin()) % kColors;
      if (found == labels.end()) labels.push_back(bar.label);
      const double length = most > 0 ? (kBarsWidth - kLabels - kTexts) * bar.value / most : 0;
      body += text_at(kLabels - 8, y + 10, bar.label, "end");
      body +=
          fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" rx=\"2\" class=\"c{}\"/>\n",
              kLabels, y, length, kBar, color);
      body += text_at(kLabels + length + 6, y + 10, bar.text);
      y += kRow;
    }
    y += kGap;
  }
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0:.0f}\" height=\"{1:.0f}\" viewBox=\"0 0 {0:.0f} {1:.0f}\" "
      "role=\"img\" aria-label=\"{2}\">\n<style>{3}</style>\n<rect class=\"paper\" width=\"100%\" "
      "height=\"100%\"/>\n{4}</svg>\n",
      kBarsWidth, y, html_escaped(title), kChartStyle, body);
}

BatchSweep sweep_batches(const std::string& workload, WorkloadOptions options, std::vector<int64_t> batches,
    const MeasureOptions& measuring, uint64_t limit, uint64_t resident_at_start,
    const std::function<void(const BatchPoint&)>& on_point) {
  std::ranges::sort(batches);
  BatchSweep sweep;
  sweep.largest = largest_batch(workload, options, measuring, limit);
  for (const int64_t batch : batches) {
    if (batch > sweep.largest) break;
    options.batch = batch;
    sweep.points.push_back({batch, measure(make_workload(workload, options), measuring, resident_at_start)});
    on_point(sweep.points.back());
  }
  sweep.knee = knee_of(sweep.points);
  return sweep;
}

std::string batch_chart(const std::string& title, const std::string& unit, const BatchSweep& sweep) {
  if (sweep.points.empty()) return {};
  Curve speed{{}, "#1f6fb4"}, memory{{}, "#c2571a"};
  for (const BatchPoint& point : sweep.points) {
    speed.values.push_back(point.measured.median);
    memory.values.push_back(point.measured.predicted_mb);
  }
  const double bottom = kHeight - kBottom, right = kWidth - kRight;
  std::string svg = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{0}\" height=\"{1}\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n",
      kWidth, kHeight);
  svg += fmt::format("<path d=\"M{0} {1}V{2}H{3}V{1}\" fill=\"none\" stroke=\"#888\"/>\n", kLeft, kTop, bottom, right);
  for (size_t i = 0; i < sweep.points.size(); ++i) {
    const double x = x_of(i, sweep.points.size());
    svg += text_at(x, bottom + 18, std::to_string(sweep.points[i].batch), "middle", kGray);
    if (sweep.points[i].batch != sweep.knee) continue;
    svg += fmt::format("<path d=\"M{:.1f} {}V{}\" stroke=\"#888\" stroke-dasharray=\"4 4\"/>\n", x, kTop, bottom);
    svg += text_at(x, kTop - 6, "knee", "middle", kGray);
  }
  svg += text_at(kWidth / 2, 16, title, "middle", kGray);
  svg += text_at(kWidth / 2, kHeight - 12, "batch; the largest that fits is " + sweep.largest_text(), "middle", kGray);
  const auto name_axis = [&](double x, const char* anchor, const Curve& curve, const std::string& unit) {
    const std::string color = fmt::format("fill=\"{}\"", curve.color);
    svg += text_at(x, kTop + 4, fmt::format("{:.0f}", *std::ranges::max_element(curve.values)), anchor, color);
    svg += text_at(x, kTop + 18, unit, anchor, color);
  };
  name_axis(kLeft - 6, "end", speed, unit);
  name_axis(right + 6, "start", memory, "MB");
  return svg + curve_svg(speed) + curve_svg(memory) + "</svg>\n";
}
}  // namespace linnet
