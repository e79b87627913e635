#include <charconv>
#include <cstdio>
#include "app/bench/batch_sweep.h"
#include "app/cli/bench_parts.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"

namespace linnet {
namespace {

constexpr std::string_view kKey = "batch=";

std::vector<int64_t> batches_of(const std::string& text) {
  if (text.starts_with(kKey))
    if (const std::vector<int64_t> batches = positive_numbers(std::string_view(text).substr(kKey.size()));
        !batches.empty())
      return batches;
  fail_user("--sweep " + text + " is not of the form batch=1,2,4");
}

void print_point(const BatchPoint& point) {
  const Measurement& m = point.measured;
  std::printf("%7lld %12.1f %12.1f %10.2f %11.1f %12.1f\n", static_cast<long long>(point.batch), m.median,
              m.seconds_per_step * 1e3, m.extra_work * 100, m.predicted_mb, m.saved_mb);
  std::fflush(stdout);
}

Json sweep_json(const SweepRequest& request, const std::string& unit, const BatchSweep& sweep, uint64_t limit) {
  auto rows = Json::array();
  for (const auto& [batch, m] : sweep.points)
    rows.push_back({{"batch", batch},
                    {"median", m.median},
                    {"min", m.min},
                    {"max", m.max},
                    {"steps", m.steps},
                    {"seconds_per_step", m.seconds_per_step},
                    {"planned_mb", m.predicted_mb},
                    {"saved_mb", m.saved_mb},
                    {"extra_work", m.extra_work}});
  return {{"workload", request.workload},
          {"unit", unit},
          {"limit_mb", static_cast<double>(limit) / 1e6},
          {"knee", sweep.knee},
          {"largest_batch", sweep.largest},
          {"rows", rows}};
}

}  // namespace

std::vector<int64_t> positive_numbers(std::string_view text) {
  std::vector<int64_t> numbers;
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at <= end;) {
    int64_t number = 0;
    const auto [rest, error] = std::from_chars(at, end, number);
    if (error != std::errc{} || number < 1 || (rest != end && *rest != ',')) return {};
    numbers.push_back(number);
    at = rest + 1;
  }
  return numbers;
}

void print_batch_sweep(const SweepRequest& request, const MeasureOptions& measuring, uint64_t limit,
                       uint64_t resident_at_start) {
  const std::vector<int64_t> batches = batches_of(request.values);
  const std::string unit = make_workload(request.workload, {.dropout = request.dropout, .batch = batches[0]}).unit;
  if (!request.json)
    std::printf("%7s %12s %12s %10s %11s %12s\n", "batch", unit.c_str(), "ms a step", "again, %", "planned MB",
                "saved MB");
  const BatchSweep sweep = sweep_batches(request.workload, {.dropout = request.dropout}, batches, measuring, limit,
                                         resident_at_start, [&](const BatchPoint& point) {
                                           if (!request.json) print_point(point);
                                         });
  if (request.json) {
    std::printf("%s\n", sweep_json(request, unit, sweep, limit).dump().c_str());
  } else {
    if (sweep.knee > 0)
      std::printf("knee: batch %lld, the smallest with 90%% of the highest throughput\n",
                  static_cast<long long>(sweep.knee));
    std::printf("largest batch within %.1f MB: %lld\n", static_cast<double>(limit) / 1e6,
                static_cast<long long>(sweep.largest));
  }
  if (request.chart.empty() || sweep.points.empty()) return;
  write_file_atomically(request.chart, batch_chart(request.workload, unit, sweep));
  if (!request.json) std::printf("written to %s\n", request.chart.c_str());
}

}  // namespace linnet
