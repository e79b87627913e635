// Prometheus counters and histograms with labels. Safe from any thread.
// https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace linnet {
std::string metric_line(const std::string& name, const std::map<std::string, std::string>& labels, double value);

class Metrics {
 public:
  using Labels = std::map<std::string, std::string>;

  void add(const std::string& counter, const Labels& labels, double value = 1);
  void observe(const std::string& histogram, const Labels& labels, double seconds);
  std::string text() const;

 private:
  static constexpr std::array<double, 14> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30};  // seconds
  struct Histogram {
    std::array<uint64_t, kBounds.size() + 1> counts = {};
    double sum = 0;
  };

  mutable std::mutex mutex_;
  std::map<std::string, std::map<Labels, double>> counters_;
  std::map<std::string, std::map<Labels, Histogram>> histograms_;
};
}  // namespace linnet
