// `linnet bench infer` and `linnet bench --sweep`: tables, JSON and charts.
#include <algorithm>
#include <ranges>
#include "app/bench/bar_chart.h"
#include "app/bench/batch_sweep.h"
#include "app/bench/generation_bench.h"
#include "app/bench/inference_bench.h"
#include "app/cli/bench_parts.h"
#include "app/cli/command_line.h"
#include "app/cli/print-inl.h"
#include "base/files.h"
#include "base/text.h"
#include "engine/kernels/processor.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {
constexpr const char* kRandomDecoder = "gpt2-124m";

std::vector<int64_t> numbers_of(const char* option, const std::string& text) {
  const std::vector<int64_t> numbers = positive_numbers(text);
  if (numbers.empty()) fail_user(option, " ", text, " is no list of numbers, such as 1,8,32");
  return numbers;
}

std::vector<std::string> words_of(const std::string& text) {
  if (text.empty()) return {};
  const std::vector<std::string_view> words = split(text, ',');
  return {words.begin(), words.end()};
}

bool is_decoder(const std::string& model) {
  if (model.empty()) return false;
  return model == kRandomDecoder || ConfigFile(model + "/config.json").text("model_type", "") != "bert";
}

std::string model_title(const std::string& name, int threads) {
  return fmt::format("{}, {} thread{}, {}", name, threads, threads == 1 ? "" : "s", current_isa());
}

// Speed relative to fp32; "" if that was not measured.
std::string times(double speed) { return speed > 0 ? fmt::format("{:.2f}x", speed) : ""; }

std::string bar_text(double figure, double speed, const std::string& more) {
  return fmt::format("{:.1f}{}, {}", figure, speed > 0 ? " (" + times(speed) + ")" : "", more);
}

void write_chart(const BenchArguments& arguments, const std::string& svg) {
  if (arguments.chart.empty()) return;
  write_file_atomically(arguments.chart, svg);
  if (!arguments.json) print("written to {}\n", arguments.chart);
}

// Groups rows by batch and length; the first precision's speed is 1 if it is fp32.
int bench_encoder(const BenchArguments& arguments, int threads) {
  InferenceBenchOptions options{.folder = arguments.model, .seconds = arguments.seconds / 5, .threads = threads};
  if (!arguments.batches.empty()) options.batches = numbers_of("--batches", arguments.batches);
  if (!arguments.lengths.empty()) options.lengths = numbers_of("--lengths", arguments.lengths);
  if (!arguments.precisions.empty()) options.precisions = words_of(arguments.precisions);
  const std::string title =
      model_title(arguments.model.empty() ? "6 layers of 384 as in MiniLM, random weights" : arguments.model, threads);
  if (!arguments.json)
    print("{}; latency of a batch in ms\n{:<13} {:>5} {:>6} {:>9} {:>9} {:>9} {:>11} {:>7} {:>8} {:>9} {:>10} {:>9}\n",
        title, "precision", "batch", "length", "p50", "p95", "p99", "sequences/s", "speed", "load s", "file MB",
        "weights MB", "memory MB");
  Json rows = Json::array();
  std::vector<BarGroup> groups;
  double fp32 = 0;
  measure_inference(options, [&](const InferenceRow& row) {
    const std::string group = fmt::format("batch of {}, {} tokens: sequences a second", row.batch, row.length);
    if (groups.empty() || groups.back().name != group) groups.push_back({group, {}}), fp32 = 0;
    if (row.precision == "fp32") fp32 = row.sequences;
    const double speed = fp32 > 0 ? row.sequences / fp32 : 0;
    groups.back().bars.push_back(
        {row.precision, row.sequences, bar_text(row.sequences, speed, fmt::format("p99 {:.1f} ms", row.p99 * 1e3))});
    if (!arguments.json) {
      print("{:<13} {:5} {:6} {:9.2f} {:9.2f} {:9.2f} {:11.1f} {:>7} {:8.2f} {:9.1f} {:10.1f} {:9.1f}\n", row.precision,
          row.batch, row.length, row.p50 * 1e3, row.p95 * 1e3, row.p99 * 1e3, row.sequences, times(speed),
          row.load_seconds, row.file_mb, row.weight_mb, row.memory);
      flush_output();
    }
    rows.push_back(
        {{"precision", row.precision}, {"batch", row.batch}, {"length", row.length}, {"p50_ms", row.p50 * 1e3},
            {"p95_ms", row.p95 * 1e3}, {"p99_ms", row.p99 * 1e3}, {"sequences_per_second", row.sequences},
            {"speed_of_fp32", speed > 0 ? Json(speed) : Json(nullptr)}, {"load_seconds", row.load_seconds},
            {"file_mb", row.file_mb}, {"weight_mb", row.weight_mb}, {"memory_mb", row.memory}, {"runs", row.runs}});
  });
  const Json json{{"workload", "infer"}, {"model", arguments.model.empty() ? "minilm-l6-random" : arguments.model},
      {"threads", threads}, {"isa", current_isa()}, {"rows", rows}};
  if (arguments.json) print_json(json);
  write_chart(arguments, bar_chart(title, groups));
  return 0;
}

int bench_decoder(const BenchArguments& arguments, int threads) {
  DecodingBenchOptions options{.folder = arguments.model == kRandomDecoder ? "" : arguments.model,
      .seconds = arguments.seconds,
      .threads = threads};
  if (!arguments.batches.empty()) fail_user("--batches is of encoders: a decoder writes one text here");
  if (!arguments.precisions.empty()) options.precisions = words_of(arguments.precisions);
  if (!arguments.lengths.empty()) {
    const std::vector<int64_t> lengths = numbers_of("--lengths", arguments.lengths);
    if (lengths.size() > 1) fail_user("--lengths of a decoder is one number: the tokens that it writes");
    options.tokens = lengths[0];
  }
  const DecodingMeasurement m = measure_decoding(options);
  const auto plain = std::ranges::find(m.rows, "fp32", &DecodingRow::precision);
  const double fp32 = plain == m.rows.end() ? 0 : plain->tokens_per_second;
  const std::string title =
      model_title(options.folder.empty() ? "GPT-2's 124M, random weights" : options.folder, threads);
  if (!arguments.json)
    print(
        "{}; {} tokens behind {}; memory is read at {:.1f} GB/s\n{:<13} {:>9} {:>7} {:>8} {:>8} {:>8} {:>9} {:>8} "
        "{:>9} {:>10} {:>9}\n",
        title, options.tokens, kGenerationPrompt, m.bandwidth * 1e-9, "precision", "tokens/s", "speed", "p50 ms",
        "p95 ms", "p99 ms", "of memory", "load s", "file MB", "weights MB", "memory MB");
  Json rows = Json::array();
  BarGroup group{"tokens a second, one text", {}};
  for (const DecodingRow& row : m.rows) {
    const double speed = fp32 > 0 ? row.tokens_per_second / fp32 : 0;
    if (!arguments.json)
      print("{:<13} {:9.1f} {:>7} {:8.2f} {:8.2f} {:8.2f} {:8.0f}% {:8.2f} {:9.1f} {:10.1f} {:9.1f}\n", row.precision,
          row.tokens_per_second, times(speed), row.p50 * 1e3, row.p95 * 1e3, row.p99 * 1e3, 100 * row.share_of_bound,
          row.load_seconds, row.file_mb, row.weight_mb, row.memory);
    const std::string share = fmt::format("{:.0f}% of what memory allows", 100 * row.share_of_bound);
    group.bars.push_back({row.precision, row.tokens_per_second, bar_text(row.tokens_per_second, speed, share)});
    rows.push_back({{"precision", row.precision}, {"tokens_per_second", row.tokens_per_second},
        {"speed_of_fp32", speed > 0 ? Json(speed) : Json(nullptr)}, {"p50_ms", row.p50 * 1e3},
        {"p95_ms", row.p95 * 1e3}, {"p99_ms", row.p99 * 1e3}, {"share_of_bound", row.share_of_bound},
        {"load_seconds", row.load_seconds}, {"file_mb", row.file_mb}, {"weight_mb", row.weight_mb},
        {"memory_mb", row.memory}, {"texts", row.texts}});
  }
  const Json json{{"workload", "infer"}, {"model", arguments.model}, {"tokens", options.tokens}, {"threads", threads},
      {"isa", current_isa()}, {"bandwidth_gb_per_second", m.bandwidth * 1e-9}, {"rows", rows}};
  if (arguments.json) print_json(json);
  write_chart(arguments, bar_chart(title, {group}));
  return 0;
}

std::vector<int64_t> batches_of(const std::string& text) {
  constexpr std::string_view kKey = "batch=";
  std::vector<int64_t> batches;
  if (text.starts_with(kKey)) batches = positive_numbers(std::string_view(text).substr(kKey.size()));
  if (batches.empty()) fail_user("--sweep ", text, " is not of the form batch=1,2,4");
  return batches;
}

Json sweep_json(const BenchArguments& arguments, const std::string& unit, const BatchSweep& sweep, uint64_t limit) {
  auto rows = Json::array();
  for (const auto& [batch, m] : sweep.points)
    rows.push_back({{"batch", batch}, {"median", m.median}, {"min", m.min}, {"max", m.max}, {"steps", m.steps},
        {"seconds_per_step", m.seconds_per_step}, {"planned_mb", m.predicted_mb}, {"saved_mb", m.saved_mb},
        {"extra_work", m.extra_work}});
  return {{"workload", arguments.name}, {"unit", unit}, {"limit_mb", megabytes(limit)}, {"knee", sweep.knee},
      {"largest_batch", sweep.largest}, {"rows", rows}};
}
}  // namespace

int bench_infer(const BenchArguments& arguments, int threads) {
  return is_decoder(arguments.model) ? bench_decoder(arguments, threads) : bench_encoder(arguments, threads);
}

int bench_sweep(
    const BenchArguments& arguments, const MeasureOptions& measuring, uint64_t limit, uint64_t resident_at_start) {
  const std::vector<int64_t> batches = batches_of(arguments.sweep);
  const std::string unit = make_workload(arguments.name, {.dropout = arguments.dropout, .batch = batches[0]}).unit;
  if (!arguments.json)
    print(
        "{:>7} {:>12} {:>12} {:>10} {:>11} {:>12}\n", "batch", unit, "ms a step", "again, %", "planned MB", "saved MB");
  const auto print_point = [&](const BatchPoint& point) {
    if (arguments.json) return;
    const auto& [batch, m] = point;
    print("{:7} {:12.1f} {:12.1f} {:10.2f} {:11.1f} {:12.1f}\n", batch, m.median, m.seconds_per_step * 1e3,
        m.extra_work * 100, m.predicted_mb, m.saved_mb);
    flush_output();
  };
  const BatchSweep sweep = sweep_batches(
      arguments.name, {.dropout = arguments.dropout}, batches, measuring, limit, resident_at_start, print_point);
  if (arguments.json) {
    print_json(sweep_json(arguments, unit, sweep, limit));
  } else {
    if (sweep.knee > 0) print("knee: batch {}, the smallest with 90% of the highest throughput\n", sweep.knee);
    print("largest batch within {:.1f} MB: {}\n", megabytes(limit), sweep.largest);
  }
  if (!sweep.points.empty()) write_chart(arguments, batch_chart(arguments.name, unit, sweep));
  return 0;
}
}  // namespace linnet
