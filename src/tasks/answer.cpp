#include "tasks/answer.h"
#include <algorithm>
#include <cstdio>
#include <numeric>

namespace linnet {
std::string cell(double number) {
  char text[64];
  std::snprintf(text, sizeof text, "%.6f", number);
  return text;
}

Answer class_answer(std::span<const double> probabilities, const std::vector<std::string>& classes, int64_t top) {
  std::vector<size_t> order(probabilities.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return probabilities[i]; });
  order.resize(std::min(order.size(), static_cast<size_t>(top)));
  Answer answer;
  answer.json["label"] = classes[order[0]];
  answer.json["probability"] = probabilities[order[0]];
  for (const size_t i : order) {
    answer.cells.insert(answer.cells.end(), {classes[i], cell(probabilities[i])});
    if (top > 1) answer.json["top"].push_back({{"label", classes[i]}, {"probability", probabilities[i]}});
  }
  return answer;
}

std::vector<std::string> class_heading(int64_t top) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < top; ++i) {
    const std::string rank = i == 0 ? "" : "_" + std::to_string(i + 1);
    names.insert(names.end(), {"label" + rank, "probability" + rank});
  }
  return names;
}
}  // namespace linnet
