#include "app/bench/batch_sweep.h"
#include <fmt/format.h>
#include <algorithm>

namespace linnet {
namespace {
constexpr double kKneeShare = 0.9;
constexpr int64_t kMostBatch = 1 << 14;

// The largest batch up to kMostBatch whose plan is within the limit. Memory is almost proportional to the batch: two
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
  auto batch = static_cast<int64_t>(std::clamp(guess, 1.0, static_cast<double>(kMostBatch)));
  const auto step = [&] { return std::max<int64_t>(1, batch / 64); };
  while (batch > 1 && bytes(batch) > limit) batch -= step();
  while (batch + step() <= kMostBatch && bytes(batch + step()) <= limit) batch += step();
  return batch;
}

int64_t knee_of(const std::vector<BatchPoint>& points) {
  double most = 0;
  for (const BatchPoint& point : points) most = std::max(most, point.measured.median);
  for (const BatchPoint& point : points)
    if (point.measured.median >= kKneeShare * most) return point.batch;
  return 0;
}

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

std::string text_svg(double x, double y, const char* anchor, const char* color, const std::string& text) {
  return fmt::format(
      "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" fill=\"{}\">{}</text>\n", x, y, anchor, color, text);
}
}  // namespace

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
    svg += text_svg(x, bottom + 18, "middle", "#333", std::to_string(sweep.points[i].batch));
    if (sweep.points[i].batch != sweep.knee) continue;
    svg += fmt::format("<path d=\"M{:.1f} {}V{}\" stroke=\"#888\" stroke-dasharray=\"4 4\"/>\n", x, kTop, bottom);
    svg += text_svg(x, kTop - 6, "middle", "#333", "knee");
  }
  svg += text_svg(kWidth / 2, 16, "middle", "#333", title);
  svg += text_svg(
      kWidth / 2, kHeight - 12, "middle", "#333", fmt::format("batch; the largest that fits is {}", sweep.largest));
  svg +=
      text_svg(kLeft - 6, kTop + 4, "end", speed.color, fmt::format("{:.0f}", *std::ranges::max_element(speed.values)));
  svg += text_svg(kLeft - 6, kTop + 18, "end", speed.color, unit);
  svg += text_svg(
      right + 6, kTop + 4, "start", memory.color, fmt::format("{:.0f}", *std::ranges::max_element(memory.values)));
  svg += text_svg(right + 6, kTop + 18, "start", memory.color, "MB");
  return svg + curve_svg(speed) + curve_svg(memory) + "</svg>\n";
}
}  // namespace linnet
