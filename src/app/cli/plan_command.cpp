#include <algorithm>
#include <tuple>
#include "app/cli/commands.h"
#include "app/cli/plan_parts.h"
#include "app/cli/print-inl.h"
#include "base/files.h"
#include "config/hints.h"
#include "distributed/comm/shard_sum.h"
#include "tasks/session_task.h"
#include "training/run/run_record.h"

namespace linnet {
namespace {
struct PlanArguments : ConfigArguments {
  std::string html;
  bool fusion = false, sweep = false;
  PlanRanksArguments foresight{.ranks = "1"};
};

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

void print_plan_json(const PlanAnswer& answer, const RankLayout& division, uint64_t limit) {
  print_json({{"data", division.data}, {"tensor", division.tensor}, {"parameters", answer.parameters},
      {"batches", answer.batches}, {"assumption", answer.assumption}, {"recomputation", answer.recomputation},
      {"memory", memory_json(answer.forecast)}, {"peak_bytes", answer.forecast.peak()}, {"memory_bytes", limit},
      {"fits", answer.forecast.peak() <= limit}, {"batch_key", answer.batch_key},
      {"largest_batch", answer.largest_batch}, {"more_may_fit", answer.more_may_fit}});
}

void write_page(const PlanArguments& arguments, const Config& config, const PlanAnswer& answer) {
  ReportRun run{.name = arguments.config, .config = report_config(config), .memory = answer.memory_record};
  const ReportTitle title{.title = "Memory of " + arguments.config,
      .subtitle = "Planned before training; batches of " + answer.batches,
      .command = "plan --html"};
  write_file_atomically(arguments.html, report_page(title, std::span(&run, 1)));
  if (!arguments.foresight.json) print("written to {}\n", arguments.html);
}

// Plans one rank of each stage like a run: if recomputation is not enough for the configured limit, with more
// micro-batches, the same number for all stages.
std::vector<PlanAnswer> plan_within(Config& config, uint64_t limit, bool exact, const RankLayout& division) {
  const bool may_cut = config.train.micro_batches == 0 && !config.train.memory.empty();
  std::vector<PlanAnswer> stages(division.pipeline);
  std::vector<std::unique_ptr<SessionTask>> tasks(stages.size());
  for (size_t stage = 0; stage < stages.size();) {
    if (stages.size() > 1) config.process.rank = static_cast<int>(stage) * division.tensor;
    stages[stage] =
        plan_memory({.config = of_one_shard(config), .memory = limit, .exact = exact, .task = &tasks[stage]});
    const bool is_cut = may_cut && stages[stage].forecast.peak() > limit && double_micro_batches(config);
    stage = is_cut ? 0 : stage + 1;
  }
  for (PlanAnswer& answer : stages)
    answer.largest_batch *= config.train.data_shards * std::max<int64_t>(config.train.micro_batches, 1);
  return stages;
}

void print_memory(const PlanAnswer& answer) {
  print_text(answer.forecast.text());
  print("  (arena {:.1f} MB; no placement could be below {:.1f} MB)\n", megabytes(answer.arena_bytes),
      megabytes(answer.arena_lower_bound));
  if (!answer.recomputation.empty()) print("  ({})\n", answer.recomputation);
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
    print_memory(answer);
  }
}

// Refuses options that have no effect on the answer.
void check_form(const PlanArguments& arguments) {
  const PlanRanksArguments& foresight = arguments.foresight;
  const auto refuse = [](bool given, const char* option, const char* beside) {
    if (given) fail_user(option, " does not go with ", beside, ": leave one of them out");
  };
  const bool is_network = !foresight.network.empty();
  if (is_network || arguments.sweep) {
    const char* const table = is_network ? "--network" : "--sweep";
    refuse(!arguments.html.empty(), "--html", table);
    refuse(arguments.fusion, "--fusion", table);
  }
  refuse(arguments.sweep && is_network, "--network", "--sweep");
  refuse(arguments.sweep && foresight.exact, "--exact", "--sweep");
  refuse(arguments.sweep && foresight.json, "--json", "--sweep");
  refuse(foresight.json && arguments.fusion, "--fusion", "--json");
}

// Refuses options that require --network.
void check_needs_network(const PlanRanksArguments& foresight) {
  const auto refuse = [](const std::string& option) {
    fail_user(option, " goes with a network that connects the ranks, for example --network 25GB/s,5us");
  };
  if (foresight.parallel == "auto") refuse("--parallel auto");
  if (foresight.ranks.find(',') != std::string::npos) refuse("a list of --ranks");
  if (!foresight.speed.empty()) refuse("--speed");
  if (!foresight.trace.empty()) refuse("--trace");
  if (foresight.batch_per_rank) refuse("--batch-per-rank");
}

int plan(const PlanArguments& arguments) {
  const PlanRanksArguments& foresight = arguments.foresight;
  check_form(arguments);
  if (!foresight.network.empty()) return plan_ranks(foresight, arguments.load());
  check_needs_network(foresight);
  Config config = arguments.load();
  config.process.ranks = parse_rank_counts(foresight.ranks).front();
  if (!foresight.parallel.empty())
    set_value(config, "parallel=" + foresight.parallel, "--parallel " + foresight.parallel);
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
  if (division.pipeline > 1 && foresight.json)
    fail_user("--json is of one rank, and the stages of a pipeline differ: leave it out, or add --network");
  if (division.pipeline > 1)
    print("each {} ranks compute one model together, some of its layers each\n", division.ranks_of_model());
  const std::vector<PlanAnswer> stages = plan_within(config, limit, foresight.exact, division);
  const PlanAnswer answer = of_all(stages);
  const int exit_code = answer.forecast.peak() > limit ? 1 : 0;
  if (foresight.json) {
    if (!arguments.html.empty()) write_page(arguments, config, answer);
    print_plan_json(answer, division, limit);
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
  PlanRanksArguments& foresight = arguments.foresight;
  arguments.declare(command);
  command
      .flag("--exact", foresight.exact, "read the data, however many they are, for the sizes that training will have")
      .take("--ranks", foresight.ranks,
          "the memory of each of N processes that train together; with --network also a list such as 1,2,4,8",
          {.type = "N"})
      .take("--parallel", foresight.parallel,
          "with --ranks: how they share the work, for example pipeline=2 or data=2,tensor=2; with --network also "
          "auto for the fastest that fits; see docs/many_processes.md",
          {.type = "LAYOUT"})
      .take("--network", foresight.network,
          "with --ranks: also the time of a step, where each rank has this bandwidth and latency, for example "
          "25GB/s,5us (`linnet bench network` measures them)",
          {.type = "SPEED"})
      .take("--speed", foresight.speed,
          "with --network: what a rank multiplies and reads a second, for example 500GFLOP/s,20GB/s (default: as "
          "measured here)",
          {.type = "SPEED"})
      .flag("--batch-per-rank", foresight.batch_per_rank,
          "with --network: each rank that trains on other data has the whole batch of the configuration (weak "
          "scaling), instead of its part")
      .take("--trace", foresight.trace, "with --network: also a Chrome trace of a simulated step of all ranks",
          {.type = "FILE"})
      .flag("--json", foresight.json, "one JSON object instead of lines for people")
      .take("--html", arguments.html, "also a page with a picture of the memory of a training step", {.type = "FILE"})
      .flag("--sweep", arguments.sweep,
          "instead a table of memory and estimated time of a step, by precision, recomputation, optimizer and LoRA")
      .flag("--fusion", arguments.fusion, "also what each pass fused");
}
}  // namespace linnet
