#include "tasks/class_weights.h"
#include <algorithm>
#include "base/fail.h"
#include "base/numbers.h"
#include "base/text.h"
#include "config/hints.h"

namespace linnet {
namespace {
// Parses "spam=5,ham=1".
std::vector<double> read_weights(const std::string& asked, const std::vector<std::string>& names) {
  std::vector<double> weights(names.size(), 1);
  for (const std::string_view part : split(asked, ',')) {
    const size_t sign = part.rfind('=');
    const auto weight = parse_number<double>(sign == part.npos ? "" : trimmed(part.substr(sign + 1), " "));
    if (!weight || !(*weight >= 0 && *weight <= 1e6))
      fail_user("class_weights: \"", part, "\" is no CLASS=WEIGHT with a weight from 0 to 1000000");
    const std::string name(trimmed(part.substr(0, sign), " "));
    const auto found = std::ranges::find(names, name);
    if (found == names.end())
      fail_user("class_weights: the training examples have no class \"", name, "\"", did_you_mean(name, names));
    weights[found - names.begin()] = *weight;
  }
  return weights;
}
}  // namespace

std::vector<float> class_weights(const std::string& asked, const std::vector<std::string>& names,
    const std::vector<int64_t>& counts, int64_t total, bool several) {
  if (asked.empty()) return {};
  if (total == 0) return std::vector<float>(names.size(), 1);  // for plans
  const bool balanced = asked == "balanced";
  std::vector<double> weights = balanced ? std::vector<double>(names.size(), 1) : read_weights(asked, names);
  double sum = 0;  // over the examples
  for (size_t i = 0; i < names.size(); ++i) {
    const auto count = static_cast<double>(std::max<int64_t>(counts[i], 1)), all = static_cast<double>(total);
    if (balanced) weights[i] = several ? (all - count) / count : all / (static_cast<double>(names.size()) * count);
    sum += weights[i] * static_cast<double>(counts[i]);
  }
  if (sum <= 0) fail_user("class_weights = \"", asked, "\" leaves no training example that counts");
  const double scale = several || balanced ? 1 : static_cast<double>(total) / sum;
  std::vector<float> scaled;
  for (const double weight : weights) scaled.push_back(static_cast<float>(weight * scale));
  return scaled;
}
}  // namespace linnet
