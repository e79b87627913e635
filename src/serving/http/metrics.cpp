#include "serving/http/metrics.h"
#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <cstdio>

namespace linnet {
namespace {
std::string escaped(const std::string& value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

std::string number(double value) {
  const bool is_whole = value == std::floor(value) && std::abs(value) < 1e15;
  return is_whole ? fmt::format("{:.0f}", value) : fmt::format("{:.9g}", value);
}
}  // namespace

std::string metric_line(const std::string& name, const std::map<std::string, std::string>& labels, double value) {
  std::string line = name;
  for (const auto& [key, text] : labels)
    line += (&text == &labels.begin()->second ? "{" : ",") + key + "=\"" + escaped(text) + "\"";
  return line + (labels.empty() ? " " : "} ") + number(value) + "\n";
}

void Metrics::add(const std::string& counter, const Labels& labels, double value) {
  const std::lock_guard lock(mutex_);
  counters_[counter][labels] += value;
}

void Metrics::observe(const std::string& histogram, const Labels& labels, double seconds) {
  const std::lock_guard lock(mutex_);
  Histogram& found = histograms_[histogram][labels];
  ++found.counts[std::ranges::lower_bound(kBounds, seconds) - kBounds.begin()];
  found.sum += seconds;
}

std::string Metrics::text() const {
  const std::lock_guard lock(mutex_);
  std::string text;
  for (const auto& [name, series] : counters_) {
    text += "# TYPE " + name + " counter\n";
    for (const auto& [labels, value] : series) text += metric_line(name, labels, value);
  }
  for (const auto& [name, series] : histograms_) {
    text += "# TYPE " + name + " histogram\n";
    for (const auto& [labels, histogram] : series) {
      uint64_t count = 0;
      for (size_t i = 0; i < histogram.counts.size(); ++i) {
        Labels with_bound = labels;
        with_bound["le"] = i < kBounds.size() ? number(kBounds[i]) : "+Inf";
        text += metric_line(name + "_bucket", with_bound, static_cast<double>(count += histogram.counts[i]));
      }
      text += metric_line(name + "_sum", labels, histogram.sum);
      text += metric_line(name + "_count", labels, static_cast<double>(count));
    }
  }
  return text;
}
}  // namespace linnet
