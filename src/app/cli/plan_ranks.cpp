#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <vector>
#include "app/cli/plan_parts.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "config/hints.h"
#include "engine/kernels/bandwidth.h"
#include "engine/kernels/peak.h"
#include "tasks/planning/foresight.h"
#include "training/run/trainer_options.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {

double megabytes(double bytes) { return bytes / 1e6; }

MachineSpeed measured_speed(const Config& config) {
  const TrainerOptions options = trainer_options(config, true);
  ThreadPool pool(options.threads);
  return {1e9 * measured_peak_gflops(cpu_precision(precision_of(config.train.precision)), pool),
          measured_bandwidth(pool, size_t{128} << 20)};
}

// "500GFLOP/s,20GB/s".
MachineSpeed parse_speed(const std::string& text) {
  const auto fail = [&] {
    fail_user("--speed \"" + text +
              "\" is not understood; write what a rank multiplies and reads, for example --speed "
              "500GFLOP/s,20GB/s");
  };
  const size_t comma = text.find(',');
  if (comma == std::string::npos) fail();
  const auto number = [&](std::string_view word, std::initializer_list<std::pair<std::string_view, double>> units) {
    double value = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    const std::string_view unit = word.substr(static_cast<size_t>(end - word.data()));
    if (error == std::errc() && std::isfinite(value) && value > 0)
      for (const auto& [name, factor] : units)
        if (unit == name) return value * factor;
    fail();
    return 0.0;
  };
  return {number(std::string_view(text).substr(0, comma), {{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}}),
          number(std::string_view(text).substr(comma + 1), {{"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}})};
}

double bytes_of_kinds(const Foresight& f, std::initializer_list<OperationKind> kinds) {
  double bytes = 0;
  for (const OperationKind kind : kinds) bytes += f.step.sent_bytes[static_cast<size_t>(kind)];
  return bytes;
}

double all_bytes(const Foresight& f) {
  double bytes = 0;
  for (const double of_kind : f.step.sent_bytes) bytes += of_kind;
  return bytes;
}

Json to_json(const Foresight& f) {
  Json memory = Json::array();
  for (const MemoryItem& item : f.plan.forecast.items) memory.push_back({{"name", item.name}, {"bytes", item.bytes}});
  Json sent = Json::object();
  for (int kind = 0; kind < kOperationKinds; ++kind)
    if (is_communication(static_cast<OperationKind>(kind)))
      sent[operation_kind_name(static_cast<OperationKind>(kind))] = f.step.sent_bytes[static_cast<size_t>(kind)];
  return {{"ranks", f.layout.ranks()},
          {"data", f.layout.data},
          {"tensor", f.layout.tensor},
          {"pipeline", f.layout.pipeline},
          {"interleave", f.layout.interleave},
          {"micro_batches", f.simulated.micro_batches},
          {"recompute", f.recompute},
          {"fits", f.fits},
          {"peak_bytes", f.plan.forecast.peak()},
          {"memory", std::move(memory)},
          {"sent_bytes", std::move(sent)},
          {"step_seconds", f.step.seconds},
          {"compute_seconds", f.step.compute_seconds},
          {"bubble_seconds", f.step.bubble_seconds},
          {"exposed_seconds", f.step.exposed_seconds},
          {"efficiency", f.efficiency},
          {"speedup", f.efficiency * f.layout.ranks()},
          {"batches", f.plan.batches}};
}

void print_head() {
  std::printf("%5s  %-38s %6s %10s %10s %9s %8s %8s %10s\n", "ranks", "layout", "micro", "peak MB", "sent MB",
              "s a step", "waiting", "speedup", "efficiency");
}

void print_ranks_row(const Foresight& f) {
  const StepForecast& step = f.step;
  std::printf("%5d  %-38s %6lld %10.1f %10.1f %9.4f %7.1f%% %8.2f %9.1f%%%s%s\n", f.layout.ranks(),
              layout_text(f.layout).c_str(), static_cast<long long>(f.simulated.micro_batches),
              megabytes(static_cast<double>(f.plan.forecast.peak())), megabytes(all_bytes(f)), step.seconds,
              100 * (step.bubble_seconds + step.exposed_seconds) / step.seconds, f.efficiency * f.layout.ranks(),
              100 * f.efficiency, f.recompute == "auto" ? "" : ("  recompute=" + f.recompute).c_str(),
              f.fits ? "" : "  does not fit");
  std::fflush(stdout);
}

void print_basis(const ForesightRequest& request) {
  const Network& network = request.network;
  std::printf("network %s: bandwidth of each rank and latency of an exchange%s\n", network_text(network).c_str(),
              network.overlaps ? "" : "; messages take the processors that compute");
  std::printf("node times estimated from FLOP and bytes; a rank's peak %.0f GFLOP/s, memory %.1f GB/s\n",
              request.speed.flops / 1e9, request.speed.bandwidth / 1e9);
}

void print_one(const Foresight& f, uint64_t memory) {
  const StepForecast& step = f.step;
  if (!f.plan.assumption.empty()) std::printf("%s\n", f.plan.assumption.c_str());
  std::printf("%d ranks, %s: each computes %lld micro-batch%s a step, of %s\n", f.layout.ranks(),
              layout_text(f.layout).c_str(), static_cast<long long>(f.simulated.micro_batches),
              f.simulated.micro_batches == 1 ? "" : "es", f.plan.batches.c_str());
  std::printf("memory of %s:\n%s", f.layout.pipeline > 1 ? "the rank of the pipeline that takes most" : "each rank",
              f.plan.forecast.text().c_str());
  if (!f.plan.recomputation.empty()) std::printf("  (%s)\n", f.plan.recomputation.c_str());
  if (!f.fits)
    std::printf("this does not fit within %.1f MB: it takes %.1f MB\n", megabytes(static_cast<double>(memory)),
                megabytes(static_cast<double>(f.plan.forecast.peak())));
  std::printf("sent by a rank in a step:\n");
  for (const OperationKind kind :
       {OperationKind::kGradients, OperationKind::kParameters, OperationKind::kTensor, OperationKind::kPipeline})
    if (const double bytes = bytes_of_kinds(f, {kind}); bytes > 0)
      std::printf("  %-25s %10.1f MB\n", operation_kind_name(kind), megabytes(bytes));
  const auto line = [&](const char* name, double seconds) {
    std::printf("  %-25s %10.2f ms %5.1f%%\n", name, 1e3 * seconds, 100 * seconds / step.seconds);
  };
  std::printf("a step:\n");
  line("computing", step.compute_seconds);
  if (f.layout.pipeline > 1) line("pipeline's bubble", step.bubble_seconds);
  line("waiting for the network", step.exposed_seconds);
  line("in all", step.seconds);
  std::printf("%.2f times the speed of one rank: efficiency %.1f%%\n", f.efficiency * f.layout.ranks(),
              100 * f.efficiency);
}

constexpr size_t kShownPlans = 8;  // layouts of a search

}  // namespace

std::vector<int> parse_rank_counts(const std::string& text) {
  constexpr int kMost = 1 << 15;
  std::vector<int> counts;
  const char *at = text.data(), *end = text.data() + text.size();
  for (;;) {
    int count = 0;
    const auto [stop, error] = std::from_chars(at, end, count);
    if (error != std::errc() || count < 1 || count > kMost || (stop != end && *stop != ','))
      fail_user("--ranks \"" + text + "\" is not a number from 1 to " + std::to_string(kMost) +
                " or a list of them, such as 1,2,4,8");
    counts.push_back(count);
    if (stop == end) return counts;
    at = stop + 1;
  }
}

int plan_ranks(const PlanRanksArguments& arguments, const Config& config) {
  const std::vector<int> counts = parse_rank_counts(arguments.ranks);
  const bool searches = arguments.parallel == "auto";
  if (config.train.device != "cpu")
    fail_user("--network plans for CPUs: leave device = \"" + config.train.device + "\" out");
  if (counts.size() > 1 && !arguments.trace.empty()) fail_user("--trace is of one number of --ranks");
  if (searches && counts.size() > 1) fail_user("--parallel auto is for one number of --ranks");
  ForesightRequest request{.config = config, .network = parse_network(arguments.network)};
  std::vector<RankLayout> layouts;
  for (const int count : counts)
    if (!searches) layouts.push_back(parallel_layout(arguments.parallel, count));
  request.speed = arguments.speed.empty() ? measured_speed(config) : parse_speed(arguments.speed);
  request.batch_per_group = arguments.batch_per_rank;
  request.exact = arguments.exact;
  request.memory = parse_byte_size(config.train.memory).value_or(available_memory());

  Json json{{"network", network_text(request.network)},
            {"bytes_per_second", request.network.bytes_per_second},
            {"latency_seconds", request.network.latency},
            {"peak_gflops", request.speed.flops / 1e9},
            {"memory_gb_per_second", request.speed.bandwidth / 1e9},
            {"memory_bytes", request.memory},
            {"rows", Json::array()}};
  const auto show = [&](const Foresight& f, bool alone) {
    if (arguments.json) json["rows"].push_back(to_json(f));
    else if (alone) print_one(f, request.memory);
    else print_ranks_row(f);
  };
  if (!arguments.json) print_basis(request);
  std::optional<Foresight> best;
  bool fits = true;
  if (searches) {
    LayoutSearch search = search_layouts(request, counts.front());
    json["refused"] = search.refused;
    if (search.found.empty())
      fail_user("no layout of " + arguments.ranks + " ranks is possible: " + search.why_refused);
    if (!arguments.json) {
      if (!search.found.front().plan.assumption.empty())
        std::printf("%s\n", search.found.front().plan.assumption.c_str());
      print_head();
    }
    for (size_t i = 0; i < std::min(search.found.size(), kShownPlans); ++i) show(search.found[i], false);
    if (!arguments.json) {
      if (!search.found.front().fits)
        std::printf("no layout of %s ranks fits within %.1f MB each\n", arguments.ranks.c_str(),
                    megabytes(static_cast<double>(request.memory)));
      else std::printf("best: --parallel %s\n", layout_text(search.found.front().layout).c_str());
      if (search.refused > 0)
        std::printf("%lld layouts are not possible (%s)\n", static_cast<long long>(search.refused),
                    search.why_refused.c_str());
    }
    best = std::move(search.found.front());
    fits = best->fits;
  } else {
    for (size_t i = 0; i < layouts.size(); ++i) {
      best = foresee(request, layouts[i]);
      if (i == 0 && layouts.size() > 1 && !arguments.json) {
        if (!best->plan.assumption.empty()) std::printf("%s\n", best->plan.assumption.c_str());
        print_head();
      }
      show(*best, layouts.size() == 1);
      fits = best->fits || layouts.size() > 1;
      silence_log();  // what was said of the data holds for every row
    }
  }
  if (arguments.json) std::printf("%s\n", json.dump().c_str());
  if (!arguments.trace.empty()) {
    const RankSchedule schedule = schedule_of(best->simulated, request.network);
    write_file_atomically(arguments.trace, chrome_trace(schedule, schedule.simulate()));
    if (!arguments.json) std::printf("written to %s\n", arguments.trace.c_str());
  }
  return fits ? 0 : 1;
}

}  // namespace linnet
