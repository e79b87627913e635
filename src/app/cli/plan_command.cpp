// `linnet plan`: memory of a run; with --network, memory and speed on several ranks; with --sweep, of many settings.
#include <algorithm>
#include <numeric>
#include <tuple>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/files.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "config/hints.h"
#include "distributed/comm/shard_sum.h"
#include "engine/kernels/processor.h"
#include "tasks/planning/plan_memory.h"
#include "tasks/session_task.h"
#include "training/run/run_record.h"
#include "training/run/run_setup.h"

namespace linnet {
namespace {
struct PlanArguments : ConfigArguments {
  std::string ranks = "1";  // "64", or a list "1,2,4,8" with a row for each
  std::string layout;       // --parallel: a layout, "auto" or empty
  std::string network;
  std::string speed;  // of a rank, such as "500GFLOP/s,20GB/s"; empty: measures this machine
  std::string trace;  // a file; empty: none
  std::string html;
  bool batch_per_rank = false, exact = false, json = false, fusion = false, sweep = false;
};

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
  constexpr QuantityUnit kProducts[] = {{"GFLOP/s", 1e9}, {"TFLOP/s", 1e12}};
  constexpr QuantityUnit kReads[] = {{"MB/s", 1e6}, {"GB/s", 1e9}, {"TB/s", 1e12}};
  const std::vector<std::string_view> words = split(text, ',');
  const MachineSpeed speed{parse_quantity(words[0], kProducts), parse_quantity(words.back(), kReads)};
  if (words.size() != 2 || !(speed.flops > 0 && speed.bandwidth > 0))
    fail_user("--speed \"", text,
        "\" is not understood; write what a rank multiplies and reads, for example --speed 500GFLOP/s,20GB/s");
  return speed;
}

Json to_json(const Foresight& f) {
  Json sent = Json::object();
  for (int kind = 0; kind < kOperationKinds; ++kind)
    if (is_communication(static_cast<OperationKind>(kind)))
      sent[enum_name(static_cast<OperationKind>(kind))] = f.step.sent_bytes[static_cast<size_t>(kind)];
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
      print("  {:<25} {:10.1f} MB\n", enum_name(kind), megabytes(bytes));
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

void print_line(const Config& config, const MachineSpeed& speed, uint64_t memory) {
  const TrainConfig& train = config.train;
  const PlanAnswer answer = plan_memory({.config = config, .memory = memory, .speed = speed});
  const uint64_t peak = answer.forecast.peak();
  print("{:<9} {:<10} {:<10} {:<5} {:10.1f} {:10.1f} {:12.1f} {:9.3f}{}\n", train.precision, train.recompute,
      train.optimizer, config.lora.rank > 0 ? "yes" : "no", megabytes(peak),
      megabytes(answer.forecast.bytes(MemoryKind::kOptimizer)),
      megabytes(answer.forecast.bytes(MemoryKind::kActivations)), answer.step_seconds,
      peak > memory ? "  does not fit" : "");
  flush_output();
}

// Parses "8" or "1,2,4,8".
std::vector<int> parse_rank_counts(const std::string& text) {
  constexpr int64_t kMost = 1 << 15;
  const std::vector<int64_t> counts = positive_numbers(text);
  if (counts.empty() || *std::ranges::max_element(counts) > kMost)
    fail_user("--ranks \"", text, "\" is not a number from 1 to ", kMost, " or a list of them, such as 1,2,4,8");
  return {counts.begin(), counts.end()};
}

// Memory and speed of a run on several ranks. `config` has neither process.ranks nor train.parallel.
int plan_ranks(const PlanArguments& arguments, const Config& config) {
  const std::vector<int> counts = parse_rank_counts(arguments.ranks);
  const bool searches = arguments.layout == "auto";
  if (config.train.device != "cpu")
    fail_user("--network plans for CPUs: leave device = \"", config.train.device, "\" out");
  if (counts.size() > 1 && !arguments.trace.empty()) fail_user("--trace is of one number of --ranks");
  if (searches && counts.size() > 1) fail_user("--parallel auto is for one number of --ranks");
  ForesightRequest request{.config = config, .network = parse_network(arguments.network)};
  std::vector<RankLayout> layouts;
  for (const int count : counts)
    if (!searches) layouts.push_back(parallel_layout(arguments.layout, count));
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
      const Foresight& first = search.found.front();
      if (!first.fits)
        print("no layout of {} ranks fits within {:.1f} MB each\n", arguments.ranks, megabytes(request.memory));
      else
        print("best: --parallel {}{}{}\n", layout_text(first.layout),
            first.micro_batches > 1 ? fmt::format(" --set micro_batches={}", first.micro_batches) : "",
            first.recompute != config.train.recompute ? " --set recompute=" + first.recompute : "");
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

// Prints memory and step time for all precisions, recomputation modes and optimizers; for a model folder, with and
// without adapters. Marks lines that need more than `memory`, the available bytes.
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

// Prints whether the run fits, and what would.
void print_fit(const PlanAnswer& answer, const TrainConfig& train, uint64_t limit) {
  const double most = megabytes(limit);
  const uint64_t peak = answer.forecast.peak();
  if (peak > limit) print("this does not fit within {:.1f} MB: it takes {:.1f} MB\n", most, megabytes(peak));
  if (peak > limit && train.memory.empty() && train.recompute == "auto")
    print("with --memory {}MB layers would be computed again, to take less\n", limit / 1000000);
  if (answer.all_fit) print("within {:.1f} MB even all examples fit in one batch\n", most);
  else if (answer.more_may_fit)
    print("{} {} fits within {:.1f} MB; none larger was planned\n", answer.batch_key, answer.largest_batch, most);
  else if (answer.largest_batch > 0)
    print("largest {} within {:.1f} MB: {}\n", answer.batch_key, most, answer.largest_batch);
  else
    print("no {} fits within {:.1f} MB: the smallest takes {:.1f} MB; fewer or smaller layers{} would take less\n",
        answer.batch_key, most, megabytes(answer.least_peak),
        answer.shorter_key.empty() ? "" : (" or a smaller " + answer.shorter_key));
}

void print_plan_json(const PlanAnswer& answer, const RankLayout& division, const TrainConfig& train, uint64_t limit) {
  print_json({{"data", division.data}, {"tensor", division.tensor}, {"parameters", answer.parameters},
      {"batches", answer.batches}, {"assumption", answer.assumption}, {"recomputation", answer.recomputation},
      {"memory", memory_json(answer.forecast)}, {"peak_bytes", answer.forecast.peak()}, {"memory_bytes", limit},
      {"fits", answer.forecast.peak() <= limit}, {"micro_batches", std::max<int64_t>(train.micro_batches, 1)},
      {"batch_key", answer.batch_key}, {"largest_batch", answer.largest_batch}, {"more_may_fit", answer.more_may_fit}});
}

void write_page(const PlanArguments& arguments, const Config& config, const PlanAnswer& answer) {
  ReportRun run{.name = arguments.config, .config = report_config(config), .memory = answer.memory_record};
  const ReportTitle title{.title = "Memory of " + arguments.config,
      .subtitle = "Planned before training; batches of " + answer.batches,
      .command = "plan --html"};
  write_file_atomically(arguments.html, report_page(title, std::span(&run, 1)));
  if (!arguments.json) print("written to {}\n", arguments.html);
}

// Plans one rank of each stage like a run: if recomputation is not enough for the configured limit, with more
// micro-batches, the same number for all stages.
std::vector<PlanAnswer> plan_within(Config& config, uint64_t limit, bool exact, const RankLayout& division) {
  const bool may_cut = config.train.micro_batches == 0 && !config.train.memory.empty();
  std::vector<PlanAnswer> stages(division.pipeline);
  std::vector<std::unique_ptr<SessionTask>> tasks(stages.size());
  for (size_t stage = 0; stage < stages.size();) {
    if (stages.size() > 1) config.process.rank = static_cast<int>(stage) * division.tensor;
    PlanRequest request{.config = of_one_shard(config), .memory = limit, .exact = exact, .task = &tasks[stage]};
    if (may_cut) request.micro_batches = std::max<int64_t>(config.train.micro_batches, 1);
    stages[stage] = plan_memory(request);
    const bool is_cut = may_cut && stages[stage].forecast.peak() > limit && double_micro_batches(config);
    stage = is_cut ? 0 : stage + 1;
  }
  const int64_t kept = may_cut ? 1 : std::max<int64_t>(config.train.micro_batches, 1);
  for (PlanAnswer& answer : stages) answer.largest_batch *= config.train.data_shards * kept;
  return stages;
}

// The largest stage, with the batch that fits on all.
PlanAnswer of_all(const std::vector<PlanAnswer>& stages) {
  const auto room = [](const PlanAnswer& answer) {
    return std::tuple(answer.all_fit, answer.largest_batch, -static_cast<double>(answer.least_peak));
  };
  const PlanAnswer& least = *std::ranges::min_element(stages, {}, room);
  PlanAnswer most = *std::ranges::max_element(stages, {}, [](const PlanAnswer& a) { return a.forecast.peak(); });
  most.all_fit = least.all_fit, most.more_may_fit = least.more_may_fit;
  most.largest_batch = least.largest_batch, most.least_peak = least.least_peak;
  return most;
}

void print_stages(const std::vector<PlanAnswer>& stages) {
  print("{} parameters; batches of {}\n", stages[0].parameters, stages[0].batches);
  for (const PlanAnswer& answer : stages) {
    if (!answer.stage.empty()) print("{}\n", answer.stage);
    print_text(answer.forecast.text());
    print("  (arena {:.1f} MB; no placement could be below {:.1f} MB)\n", megabytes(answer.arena_bytes),
        megabytes(answer.arena_lower_bound));
    if (!answer.recomputation.empty()) print("  ({})\n", answer.recomputation);
  }
}

// Refuses options that have no effect on the answer.
void check_form(const PlanArguments& arguments) {
  const auto refuse = [](bool given, const char* option, const char* beside) {
    if (given) fail_user(option, " does not go with ", beside, ": leave one of them out");
  };
  const bool is_network = !arguments.network.empty();
  if (is_network || arguments.sweep) {
    const char* const table = is_network ? "--network" : "--sweep";
    refuse(!arguments.html.empty(), "--html", table);
    refuse(arguments.fusion, "--fusion", table);
  }
  refuse(arguments.sweep && is_network, "--network", "--sweep");
  refuse(arguments.sweep && arguments.exact, "--exact", "--sweep");
  refuse(arguments.sweep && arguments.json, "--json", "--sweep");
  refuse(arguments.json && arguments.fusion, "--fusion", "--json");
}

// Refuses options that require --network.
void check_needs_network(const PlanArguments& arguments) {
  const auto refuse = [](const std::string& option) {
    fail_user(option, " goes with a network that connects the ranks, for example --network 25GB/s,5us");
  };
  if (arguments.layout == "auto") refuse("--parallel auto");
  if (arguments.ranks.find(',') != std::string::npos) refuse("a list of --ranks");
  if (!arguments.speed.empty()) refuse("--speed");
  if (!arguments.trace.empty()) refuse("--trace");
  if (arguments.batch_per_rank) refuse("--batch-per-rank");
}

int plan(const PlanArguments& arguments) {
  check_form(arguments);
  if (!arguments.network.empty()) return plan_ranks(arguments, arguments.load());
  check_needs_network(arguments);
  Config config = arguments.load();
  config.process.ranks = parse_rank_counts(arguments.ranks).front();
  if (!arguments.layout.empty()) set_value(config, "parallel=" + arguments.layout, "--parallel " + arguments.layout);
  const RankLayout division = parallel_layout(config.train.parallel, config.process.ranks);
  if (config.train.data_shards == 0) config.train.data_shards = division.data;
  check_share({config.train.data_shards, 0, division.data});
  validate(config);
  const int64_t shards = config.train.data_shards;
  const uint64_t limit = parse_byte_size(config.train.memory).value_or(available_memory());
  if (arguments.sweep) {
    if (division.pipeline > 1) fail_user("--sweep estimates steps of whole models: leave pipeline out of --parallel");
    print_plan_sweep(of_one_shard(config), limit);
    return 0;
  }
  if (division.pipeline > 1 && arguments.json)
    fail_user("--json is of one rank, and the stages of a pipeline differ: leave it out, or add --network");
  if (division.pipeline > 1)
    print("each {} ranks compute one model together, some of its layers each\n", division.ranks_of_model());
  const std::vector<PlanAnswer> stages = plan_within(config, limit, arguments.exact, division);
  const PlanAnswer answer = of_all(stages);
  const int exit_code = answer.forecast.peak() > limit ? 1 : 0;
  if (arguments.json) {
    if (!arguments.html.empty()) write_page(arguments, config, answer);
    print_plan_json(answer, division, config.train, limit);
    return exit_code;
  }
  if (!answer.assumption.empty()) print("{}\n", answer.assumption);
  if (division.tensor > 1 && division.pipeline > 1)
    print("each stage's layers are divided between {} ranks; this is of one of them\n", division.tensor);
  else if (division.tensor > 1)
    print("each {} ranks compute one model together; what follows is of one rank\n", division.tensor);
  if (shards > 1)
    print("each of {} {} computes {} of {} data shards; this is of one rank\n", division.data,
        division.ranks_of_model() > 1 ? "such groups" : "ranks", shards / division.data, shards);
  if (config.train.micro_batches > 1)
    print(
        "each batch is computed in {} micro-batches, whose sums are rounded in another order; what follows is of one\n",
        config.train.micro_batches);
  print_stages(stages);
  print_fit(answer, config.train, limit);
  if (!arguments.html.empty()) write_page(arguments, config, answer);
  if (arguments.fusion) print("what each pass made of the training step:\n{}", answer.fusion);
  return exit_code;
}
}  // namespace

void add_plan_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "plan", "the memory a run will take, and the largest batch that fits: exit code 1 if it does not fit", plan);
  arguments.declare(command);
  command
      .flag("--exact", arguments.exact, "read the data, however many they are, for the sizes that training will have")
      .take("--ranks", arguments.ranks,
          "the memory of each of N processes that train together; with --network also a list such as 1,2,4,8",
          {.type = "N"})
      .take("--parallel", arguments.layout,
          "with --ranks: how they share the work, for example pipeline=2 or data=2,tensor=2; with --network also "
          "auto for the fastest that fits; see docs/many_processes.md",
          {.type = "LAYOUT"})
      .take("--network", arguments.network,
          "with --ranks: also the time of a step, where each rank has this bandwidth and latency, for example "
          "25GB/s,5us (`linnet bench network` measures them)",
          {.type = "SPEED"})
      .take("--speed", arguments.speed,
          "with --network: what a rank multiplies and reads a second, for example 500GFLOP/s,20GB/s (default: as "
          "measured here)",
          {.type = "SPEED"})
      .flag("--batch-per-rank", arguments.batch_per_rank,
          "with --network: each rank that trains on other data has the whole batch of the configuration (weak "
          "scaling), instead of its part")
      .take("--trace", arguments.trace, "with --network: also a Chrome trace of a simulated step of all ranks",
          {.type = "FILE"})
      .flag("--json", arguments.json, "one JSON object instead of lines for people")
      .take("--html", arguments.html, "also a page with a picture of the memory of a training step", {.type = "FILE"})
      .flag("--sweep", arguments.sweep,
          "instead a table of memory and estimated time of a step, by precision, recomputation, optimizer and LoRA")
      .flag("--fusion", arguments.fusion, "also what each pass fused");
}
}  // namespace linnet
