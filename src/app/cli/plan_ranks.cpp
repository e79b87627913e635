#include <algorithm>
#include <charconv>
#include <cmath>
#include <numeric>
#include "app/cli/command_line.h"
#include "app/cli/plan_parts.h"
#include "app/cli/print-inl.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/log.h"
#include "base/thread_pool.h"
#include "config/hints.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "tasks/planning/foresight.h"
#include "training/run/run_record.h"
#include "training/run/trainer_options.h"

namespace linnet {
namespace {
// This machine's speed of products by precision, and of memory.
class Machine {
 public:
  explicit Machine(const Config& config)
      : pool_(trainer_options(config, true).threads), bandwidth_(measured_bandwidth(pool_, size_t{128} << 20)) {}
  MachineSpeed speed(const std::string& precision) {
    return {1e9 * measured_peak_gflops(cpu_precision(precision_of(precision)), pool_), bandwidth_};
  }

 private:
  ThreadPool pool_;
  const double bandwidth_;
};

// Parses "500GFLOP/s,20GB/s".
MachineSpeed parse_speed(const std::string& text) {
  const auto fail = [&] {
    fail_user("--speed \"", text,
        "\" is not understood; write what a rank multiplies and reads, for example --speed 500GFLOP/s,20GB/s");
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

Json to_json(const Foresight& f) {
  Json sent = Json::object();
  for (int kind = 0; kind < kOperationKinds; ++kind)
    if (is_communication(static_cast<OperationKind>(kind)))
      sent[operation_kind_name(static_cast<OperationKind>(kind))] = f.step.sent_bytes[static_cast<size_t>(kind)];
  return {{"ranks", f.layout.ranks()}, {"data", f.layout.data}, {"tensor", f.layout.tensor},
      {"pipeline", f.layout.pipeline}, {"interleave", f.layout.interleave},
      {"micro_batches", f.simulated.micro_batches}, {"recompute", f.recompute}, {"fits", f.fits},
      {"peak_bytes", f.plan.forecast.peak()}, {"memory", memory_json(f.plan.forecast)}, {"sent_bytes", std::move(sent)},
      {"step_seconds", f.step.seconds}, {"compute_seconds", f.step.compute_seconds},
      {"bubble_seconds", f.step.bubble_seconds}, {"exposed_seconds", f.step.exposed_seconds},
      {"efficiency", f.efficiency}, {"speedup", f.efficiency * f.layout.ranks()}, {"batches", f.plan.batches}};
}

void print_head(const std::string& assumption) {
  if (!assumption.empty()) print("{}\n", assumption);
  print("{:>5}  {:<38} {:>6} {:>10} {:>10} {:>9} {:>8} {:>8} {:>10}\n", "ranks", "layout", "micro", "peak MB",
      "sent MB", "s a step", "waiting", "speedup", "efficiency");
}

void print_ranks_row(const Foresight& f) {
  const StepForecast& step = f.step;
  print("{:5}  {:<38} {:6} {:10.1f} {:10.1f} {:9.4f} {:7.1f}% {:8.2f} {:9.1f}%{}{}\n", f.layout.ranks(),
      layout_text(f.layout), f.simulated.micro_batches, megabytes(f.plan.forecast.peak()),
      megabytes(std::accumulate(step.sent_bytes.begin(), step.sent_bytes.end(), 0.0)), step.seconds,
      100 * (step.bubble_seconds + step.exposed_seconds) / step.seconds, f.efficiency * f.layout.ranks(),
      100 * f.efficiency, f.recompute == "auto" ? "" : ("  recompute=" + f.recompute), f.fits ? "" : "  does not fit");
  flush_output();
}

void print_basis(const ForesightRequest& request) {
  const Network& network = request.network;
  print("network {}: bandwidth of each rank and latency of an exchange{}\n", network_text(network),
      network.overlaps ? "" : "; messages take the processors that compute");
  print("node times estimated from FLOP and bytes; a rank's peak {:.0f} GFLOP/s, memory {:.1f} GB/s\n",
      request.speed.flops / 1e9, request.speed.bandwidth / 1e9);
}

void print_one(const Foresight& f, uint64_t memory) {
  const StepForecast& step = f.step;
  if (!f.plan.assumption.empty()) print("{}\n", f.plan.assumption);
  print("{} ranks, {}: each computes {} micro-batch{} a step, of {}\n", f.layout.ranks(), layout_text(f.layout),
      f.simulated.micro_batches, f.simulated.micro_batches == 1 ? "" : "es", f.plan.batches);
  print("memory of {}:\n{}", f.layout.pipeline > 1 ? "the rank of the pipeline that takes most" : "each rank",
      f.plan.forecast.text());
  if (!f.plan.recomputation.empty()) print("  ({})\n", f.plan.recomputation);
  if (!f.fits)
    print("this does not fit within {:.1f} MB: it takes {:.1f} MB\n", megabytes(memory),
        megabytes(f.plan.forecast.peak()));
  print("sent by a rank in a step:\n");
  for (const OperationKind kind :
      {OperationKind::kGradients, OperationKind::kParameters, OperationKind::kTensor, OperationKind::kPipeline})
    if (const double bytes = step.sent_bytes[static_cast<size_t>(kind)]; bytes > 0)
      print("  {:<25} {:10.1f} MB\n", operation_kind_name(kind), megabytes(bytes));
  const auto line = [&](const char* name, double seconds) {
    print("  {:<25} {:10.2f} ms {:5.1f}%\n", name, 1e3 * seconds, 100 * seconds / step.seconds);
  };
  print("a step:\n");
  line("computing", step.compute_seconds);
  if (f.layout.pipeline > 1) line("pipeline's bubble", step.bubble_seconds);
  line("waiting for the network", step.exposed_seconds);
  line("in all", step.seconds);
  print(
      "{:.2f} times the speed of one rank: efficiency {:.1f}%\n", f.efficiency * f.layout.ranks(), 100 * f.efficiency);
}

constexpr size_t kShownPlans = 8;  // layouts shown after a search

constexpr int64_t kRank = 8;  // default rank of adapters

uint64_t item_bytes(const MemoryForecast& forecast, MemoryKind kind) {
  uint64_t bytes = 0;
  for (const MemoryItem& item : forecast.items) bytes += item.name == memory_kind_name(kind) ? item.bytes : 0;
  return bytes;
}

void print_line(const Config& config, const MachineSpeed& speed, uint64_t memory) {
  const TrainConfig& train = config.train;
  const PlanAnswer answer = plan_memory({.config = config, .memory = memory, .speed = speed});
  const uint64_t peak = answer.forecast.peak();
  print("{:<9} {:<10} {:<10} {:<5} {:10.1f} {:10.1f} {:12.1f} {:9.3f}{}\n", train.precision, train.recompute,
      train.optimizer, config.lora.rank > 0 ? "yes" : "no", megabytes(peak),
      megabytes(item_bytes(answer.forecast, MemoryKind::kOptimizer)),
      megabytes(item_bytes(answer.forecast, MemoryKind::kActivations)), answer.step_seconds,
      peak > memory ? "  does not fit" : "");
  flush_output();
}
}  // namespace

std::vector<int> parse_rank_counts(const std::string& text) {
  constexpr int64_t kMost = 1 << 15;
  const std::vector<int64_t> counts = positive_numbers(text);
  if (counts.empty() || *std::ranges::max_element(counts) > kMost)
    fail_user("--ranks \"", text, "\" is not a number from 1 to ", kMost, " or a list of them, such as 1,2,4,8");
  return {counts.begin(), counts.end()};
}

int plan_ranks(const PlanRanksArguments& arguments, const Config& config) {
  const std::vector<int> counts = parse_rank_counts(arguments.ranks);
  const bool searches = arguments.parallel == "auto";
  if (config.train.device != "cpu")
    fail_user("--network plans for CPUs: leave device = \"", config.train.device, "\" out");
  if (counts.size() > 1 && !arguments.trace.empty()) fail_user("--trace is of one number of --ranks");
  if (searches && counts.size() > 1) fail_user("--parallel auto is for one number of --ranks");
  ForesightRequest request{.config = config, .network = parse_network(arguments.network)};
  std::vector<RankLayout> layouts;
  for (const int count : counts)
    if (!searches) layouts.push_back(parallel_layout(arguments.parallel, count));
  request.speed =
      arguments.speed.empty() ? Machine(config).speed(config.train.precision) : parse_speed(arguments.speed);
  request.batch_per_group = arguments.batch_per_rank;
  request.exact = arguments.exact;
  request.memory = parse_byte_size(config.train.memory).value_or(available_memory());

  Json json{{"network", network_text(request.network)}, {"bytes_per_second", request.network.bytes_per_second},
      {"latency_seconds", request.network.latency}, {"peak_gflops", request.speed.flops / 1e9},
      {"memory_gb_per_second", request.speed.bandwidth / 1e9}, {"memory_bytes", request.memory},
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
    if (search.found.empty()) fail_user("no layout of ", arguments.ranks, " ranks is possible: ", search.why_refused);
    if (!arguments.json) print_head(search.found.front().plan.assumption);
    for (size_t i = 0; i < std::min(search.found.size(), kShownPlans); ++i) show(search.found[i], false);
    if (!arguments.json) {
      if (!search.found.front().fits)
        print("no layout of {} ranks fits within {:.1f} MB each\n", arguments.ranks, megabytes(request.memory));
      else print("best: --parallel {}\n", layout_text(search.found.front().layout));
      if (search.refused > 0) print("{} layouts are not possible ({})\n", search.refused, search.why_refused);
    }
    best = std::move(search.found.front());
    fits = best->fits;
  } else {
    for (size_t i = 0; i < layouts.size(); ++i) {
      best = foresee(request, layouts[i]);
      if (i == 0 && layouts.size() > 1 && !arguments.json) print_head(best->plan.assumption);
      show(*best, layouts.size() == 1);
      fits = best->fits || layouts.size() > 1;
      silence_log();  // messages about the data hold for every row
    }
  }
  if (arguments.json) print_json(json);
  if (!arguments.trace.empty()) {
    const RankSchedule schedule = schedule_of(best->simulated, request.network);
    write_file_atomically(arguments.trace, chrome_trace(schedule, schedule.simulate()));
    if (!arguments.json) print("written to {}\n", arguments.trace);
  }
  return fits ? 0 : 1;
}

void print_plan_sweep(const Config& config, uint64_t memory) {
  if (config.train.device != "cpu")
    fail_user("--sweep plans for the CPU: leave device = \"", config.train.device, "\" out");
  Machine machine(config);
  // Adapters need a model folder and a supporting task.
  std::vector<int64_t> ranks{0};
  if (!config.model.from.empty()) ranks.push_back(config.lora.rank > 0 ? config.lora.rank : kRank);
  print("{:<9} {:<10} {:<10} {:<5} {:>10} {:>10} {:>12} {:>9}\n", "precision", "recompute", "optimizer", "LoRA",
      "peak MB", "optimizer", "activations", "s a step");
  for (const char* precision : {"fp32", "bf16"}) {
    const MachineSpeed speed = machine.speed(precision);
    for (const char* recompute : {"none", "attention", "block"})
      for (const char* optimizer : {"adamw", "adamw8bit", "lion", "muon", "adafactor"})
        for (const int64_t rank : ranks) {
          Config other = config;
          other.train.precision = precision, other.train.recompute = recompute, other.train.optimizer = optimizer;
          other.train.memory.clear();
          other.lora.rank = rank;
          if (rank == 0) other.lora.targets.clear();
          print_line(other, speed, memory);
          silence_log();  // messages about the data hold for every line
        }
  }
}
}  // namespace linnet
