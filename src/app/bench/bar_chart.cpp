#include "app/bench/bar_chart.h"
#include <fmt/format.h>
#include <algorithm>
#include "base/text.h"

namespace linnet {
namespace {
constexpr double kWidth = 760, kLabels = 120, kTexts = 190, kRow = 17, kBar = 11, kTop = 40, kHead = 24, kGap = 8;

constexpr const char* kStyle = R"(
  text { font: 12px system-ui, sans-serif; fill: #1f2933; }
  .title { font-size: 14px; font-weight: 600; }
  .group { font-weight: 600; }
  .paper { fill: #ffffff; }
  .c0 { fill: #52606d; } .c1 { fill: #2f6fb0; } .c2 { fill: #d17f1f; } .c3 { fill: #2e8b57; }
  .c4 { fill: #a13d63; } .c5 { fill: #7a5bb5; } .c6 { fill: #8a7a1f; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e4e9ee; }
    .paper { fill: #14181c; }
    .c0 { fill: #a6b1bc; } .c1 { fill: #66a6e6; } .c2 { fill: #eda84e; } .c3 { fill: #67c48f; }
    .c4 { fill: #dd86a8; } .c5 { fill: #ad95de; } .c6 { fill: #c9b95c; }
  }
)";
constexpr size_t kColors = 7;

std::string text_at(double x, double y, const std::string& text, const char* kind = "", const char* anchor = "start") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\" class=\"{}\">{}</text>\n", x, y, anchor, kind,
      html_escaped(text));
}
}  // namespace

std::string bar_chart(const std::string& title, const std::vector<BarGroup>& groups) {
  std::vector<std::string> labels;
  std::string body = text_at(12, 22, title, "title");
  double y = kTop;
  for (const BarGroup& group : groups) {
    body += text_at(12, y + 14, group.name, "group");
    y += kHead;
    double most = 0;
    for (const Bar& bar : group.bars) most = std::max(most, bar.value);
    for (const Bar& bar : group.bars) {
      const auto found = std::ranges::find(labels, bar.label);
      const auto color = static_cast<size_t>(found - labels.begin()) % kColors;
      if (found == labels.end()) labels.push_back(bar.label);
      const double length = most > 0 ? (kWidth - kLabels - kTexts) * bar.value / most : 0;
      body += text_at(kLabels - 8, y + 10, bar.label, "", "end");
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
      kWidth, y, html_escaped(title), kStyle, body);
}
}  // namespace linnet
