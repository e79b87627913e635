// Groups of horizontal bars as SVG, for light and dark pages.
#pragma once
#include <string>
#include <vector>

namespace linnet {
struct Bar {
  std::string label;
  double value;      // at least 0
  std::string text;  // written after the bar
};

// Bars are scaled to the group's largest value. A label has the same color in all groups.
struct BarGroup {
  std::string name;
  std::vector<Bar> bars;
};

std::string bar_chart(const std::string& title, const std::vector<BarGroup>& groups);
}  // namespace linnet
