#include <algorithm>
#include "app/bench/bench.h"
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/files.h"
#include "base/log.h"
#include "base/process.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "config/hints.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "models/families/family.h"
#include "training/run/run_setup.h"

namespace linnet {
namespace {
struct BenchArguments {
  std::string name, precision = "fp32", attention_precision = "same", device = "cpu", isa = "auto", write_data;
  std::string storage = "auto", recompute = "auto", memory, sweep, chart;
  int threads = 0;
  double seconds = 5, dropout = -1;
  bool json = false, list = false, profile = false, plan = false, no_parts = false;
  int64_t batch = 0, ranks = 0, beam = 0;
  std::string quantize = "none", model, batches, lengths, precisions, source, translations;
  std::vector<std::string> keep = {};
};

constexpr const char* kRandomDecoder = "gpt2-124m";

std::vector<int64_t> numbers_of(const char* option, const std::string& text) {
  const std::vector<int64_t> numbers = positive_numbers(text);
  if (numbers.empty()) fail_user(option, " ", text, " is no list of numbers, such as 1,8,32");
  return numbers;
}

std::vector<std::string> words_of(const std::string& text) {
  return mapped<std::string>(split(text, ','), std::identity());
}

bool is_decoder(const std::string& model) {
  if (model.empty()) return false;
  return model == kRandomDecoder || find_family(ConfigFile(model + "/config.json")).kind != FamilyKind::kEncoder;
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
  options.device = arguments.device;
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
  if (arguments.device != "cpu") fail_user("decoders are measured on the CPU: leave --device out");
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

// `limit`: bytes.
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
    print("largest batch within {:.1f} MB: {}\n", megabytes(limit), sweep.largest_text());
  }
  if (!sweep.points.empty()) write_chart(arguments, batch_chart(arguments.name, unit, sweep));
  return 0;
}

int list_workloads() {
  std::vector<WorkloadRow> rows = workload_rows();
  rows.insert(rows.end(),
      {{"generate", "text from GPT-2's 124M, one at a time, with the cache and without"},
          {"infer",
              "an encoder's latency by batch, length and precision, or how fast a decoder writes (--model FOLDER)"},
          {"translate", "the lines of a file, 32 at a time (--model FOLDER --source FILE)"},
          {"network", "how fast ranks exchange messages, for linnet plan --network (--ranks N)"},
          {"peak", "what this machine's multiply-adds reach, for comparison"}});
  for (const WorkloadRow& row : rows) print("{:<12} {}\n", row.name, row.description);
  return 0;
}

int print_peak(const BenchArguments& arguments, Precision precision, int threads) {
  ThreadPool pool(threads);
  const double gflops = measured_peak_gflops(precision, pool);
  if (!arguments.json) print("peak, {}, {} threads: {:.0f} GFLOP/s\n", arguments.precision, threads, gflops);
  else
    print_json(
        {{"workload", "peak"}, {"precision", arguments.precision}, {"threads", threads}, {"peak_gflops", gflops}});
  return 0;
}

// A CPU without bf16 instructions computes in fp32 instead.
bool computes_in_fp32(const BenchArguments& arguments) {
  return arguments.device == "cpu" && arguments.precision == "bf16" &&
         cpu_precision(Precision::kBf16) == Precision::kF32;
}

std::string precision_text(const BenchArguments& arguments) {
  const bool other = arguments.attention_precision != "same" && arguments.attention_precision != arguments.precision;
  return arguments.precision + (computes_in_fp32(arguments) ? " asked, fp32 computed" : "") +
         (other ? " with " + arguments.attention_precision + " attention" : "");
}

// Results that do not depend on the device.
Json figures(const BenchArguments& arguments, const Workload& workload, const Measurement& m) {
  return {{"workload", workload.name}, {"precision", computes_in_fp32(arguments) ? "fp32" : arguments.precision},
      {"attention_precision", arguments.attention_precision}, {"unit", workload.unit}, {"median", m.median},
      {"min", m.min}, {"max", m.max}, {"steps", m.steps}, {"processor_ms", m.processor_seconds * 1e3},
      {"flop_per_step", m.flop_per_step}, {"memory_mb", m.memory_mb}, {"predicted_mb", m.predicted_mb},
      {"program_mb", m.program_mb}, {"saved_mb", m.saved_mb}, {"recomputation", m.recomputation},
      {"extra_work", m.extra_work}, {"first_step_seconds", m.first_step_seconds}, {"parameters", m.parameters},
      {"first_loss", m.first_loss}, {"last_loss", m.last_loss}};
}

void print_results(
    const BenchArguments& arguments, const Workload& workload, const Measurement& m, int threads, double peak) {
  const double gflops = m.flop_per_step / m.seconds_per_step * 1e-9;
  const double backward = m.seconds_per_step - m.forward_seconds - m.update_seconds;
  if (!arguments.json) {
    print(
        "{}, {}, {} threads: {:.1f} {} ({:.1f} to {:.1f}, {} steps), {:.0f} GFLOP/s = {:.0f}% of this machine's "
        "{:.0f}\n",
        workload.name, precision_text(arguments), threads, m.median, workload.unit, m.min, m.max, m.steps, gflops,
        100 * gflops / peak, peak);
    if (m.forward_seconds > 0)
      print("a step: forward {:.1f} ms, backward {:.1f} ms, update {:.1f} ms\n", m.forward_seconds * 1e3,
          backward * 1e3, m.update_seconds * 1e3);
    print(
        "memory {:.1f} MB (planned {:.1f}, program {:.1f}), {} parameters, first step done {:.2f} s after the start\n",
        m.memory_mb, m.predicted_mb, m.program_mb, m.parameters, m.first_step_seconds);
    if (!m.recomputation.empty())
      print("to take less memory it {}; planned in {:.2f} s\n", m.recomputation, m.planning_seconds);
    return;
  }
  const auto part = [&](double seconds) { return m.forward_seconds > 0 ? Json(seconds * 1e3) : Json(); };
  Json json = figures(arguments, workload, m);
  json.update({{"threads", threads}, {"isa", current_isa()}, {"gflops", gflops}, {"peak_gflops", peak},
      {"fraction_of_peak", gflops / peak}, {"planning_seconds", m.planning_seconds},
      {"forward_ms", part(m.forward_seconds)}, {"backward_ms", part(backward)}, {"update_ms", part(m.update_seconds)}});
  print_json(json);
}

int print_device(
    const BenchArguments& arguments, const Workload& workload, const Measurement& m, const DeviceInfo& device) {
  if (arguments.json) {
    Json json = figures(arguments, workload, m);
    json.update({{"device", device.name}, {"device_detail", device.detail},
        {"tflops", m.flop_per_step / m.seconds_per_step * 1e-12}, {"joules_per_unit", m.joules_per_unit},
        {"idle_watts", m.idle_watts}, {"recordings", m.choices.recordings}, {"algorithms", m.choices.algorithms}});
    return print_json(json), 0;
  }
  print("{}, {}, {}: {:.1f} {} ({:.1f} to {:.1f}, {} steps), {:.1f} TFLOP/s\n", workload.name,
      precision_text(arguments), device.name, m.median, workload.unit, m.min, m.max, m.steps,
      m.flop_per_step / m.seconds_per_step * 1e-12);
  print("memory {:.1f} MB, first step done {:.2f} s after the start\n", m.memory_mb, m.first_step_seconds);
  if (m.joules_per_unit > 0)
    print("energy {:.4g} J for each of {}, idle {:.0f} W included\n", m.joules_per_unit, workload.unit, m.idle_watts);
  return 0;
}

int print_generation(const BenchArguments& arguments, int threads) {
  const bool quantized = arguments.quantize != "none";  // skips the comparison without a cache
  log_info(std::string("GPT-2 with 124M parameters writes 100, 500 and 1,000 tokens, with the cache") +
           (quantized ? "" : " and without") + ": this takes a minute or more");
  const GenerationMeasurement m =
      measure_generation(threads, {100, 500, 1000}, !quantized, parse_quantization(arguments.quantize, arguments.keep));
  auto rows = Json::array();
  for (const GenerationRow& row : m.rows) {
    const auto count = static_cast<double>(row.tokens);
    rows.push_back({{"tokens", row.tokens}, {"cached_tokens_per_second", count / row.cached_seconds},
        {"uncached_tokens_per_second", quantized ? Json() : Json(count / row.uncached_seconds)},
        {"fraction_of_bandwidth_bound", row.bound_seconds / row.cached_seconds}});
    if (arguments.json) continue;
    print("{:4} tokens: {:.1f} tokens/s with the cache ({:.0f}% of what memory allows)", row.tokens,
        count / row.cached_seconds, 100 * row.bound_seconds / row.cached_seconds);
    print("{}\n", quantized ? "" : fmt::format(", {:.2f} without", count / row.uncached_seconds));
  }
  const Json json{{"workload", "generate"}, {"model", "gpt2-124m"}, {"quantize", arguments.quantize},
      {"weight_mb", m.weight_bytes * 1e-6}, {"threads", threads}, {"isa", current_isa()},
      {"bandwidth_gb_per_second", m.bandwidth * 1e-9}, {"rows", rows}};
  if (arguments.json) print_json(json);
  else print("memory: {:.1f} GB/s read by {} threads\n", m.bandwidth * 1e-9, threads);
  return 0;
}

int print_translation(const BenchArguments& arguments, int threads) {
  if (arguments.model.empty() || arguments.source.empty())
    fail_user("`linnet bench translate` needs --model FOLDER and --source FILE");
  InferenceOptions options;
  options.beams = arguments.beam, options.threads = threads;
  options.quantize = arguments.quantize, options.keep = arguments.keep;
  const TranslationMeasurement m = measure_translation(arguments.model, arguments.source, options);
  if (!arguments.translations.empty())
    write_file_atomically(
        arguments.translations, joined(m.translations, "", [](const std::string& line) { return line + "\n"; }));
  const Json json{{"workload", "translate"}, {"model", arguments.model}, {"quantize", arguments.quantize},
      {"beam", m.beam}, {"threads", threads}, {"isa", current_isa()}, {"lines", m.translations.size()},
      {"seconds", m.seconds}, {"token_seconds", m.token_seconds}, {"load_seconds", m.load_seconds}};
  if (arguments.json) print_json(json);
  else
    print("{} lines, beam {}, {} threads, {}: {:.2f} s, {:.1f} lines/s; tokenization {:.2f} s, loading {:.2f} s\n",
        m.translations.size(), m.beam, threads, current_isa(), m.seconds,
        static_cast<double>(m.translations.size()) / m.seconds, m.token_seconds, m.load_seconds);
  return 0;
}

int print_plan(const BenchArguments& arguments, const Workload& workload, const Measurement& m) {
  if (arguments.json) {
    print_json({{"workload", workload.name}, {"precision", arguments.precision}, {"predicted_mb", m.predicted_mb},
        {"program_mb", m.program_mb}, {"saved_mb", m.saved_mb}, {"recomputation", m.recomputation},
        {"extra_work", m.extra_work}, {"planning_seconds", m.planning_seconds}, {"parameters", m.parameters}});
    return 0;
  }
  print("{}, {}: {:.1f} MB planned, {:.1f} MB of it saved for the backward pass; planned in {:.2f} s\n", workload.name,
      precision_text(arguments), m.predicted_mb, m.saved_mb, m.planning_seconds);
  if (!m.recomputation.empty()) print("to take less memory it {}\n", m.recomputation);
  return 0;
}

void refuse_idle_options(const BenchArguments& arguments) {
  const auto check = [](bool is_given, const char* option, bool has_effect) {
    if (is_given && !has_effect) fail_user(option, " has no effect on what is measured here: leave it out");
  };
  const bool translates = arguments.name == "translate", infers = arguments.name == "infer";
  const bool trains = !translates && !infers && arguments.name != "generate" && arguments.name != "peak";
  check(!arguments.model.empty(), "--model", translates || infers);
  check(arguments.beam > 0, "--beam", translates);
  check(arguments.dropout >= 0, "--dropout", trains);
  check(arguments.attention_precision != "same", "--attention-precision", trains);
  check(arguments.plan, "--plan", trains && !arguments.profile);
  check(!arguments.chart.empty(), "--chart without --sweep", infers || !arguments.sweep.empty());
  check(arguments.device != "cpu", "--device", infers || trains);
}

// Bytes: 1 MiB for planning, 5 MiB for code paged in later and stacks, as in forecast_memory().
constexpr uint64_t kPlans = 6 << 20;

int bench(const BenchArguments& arguments) {
  const uint64_t resident = resident_bytes();
  if (arguments.list && arguments.json) fail_user("--list has no --json: leave one of them out");
  if (arguments.list) return list_workloads();
  if (arguments.name.empty()) fail_user("which workload? `linnet bench --list` names them");
  if (arguments.name == "network") return bench_network(arguments.ranks, arguments.threads, arguments.json);
  if (arguments.ranks > 0) fail_user("--ranks is of `linnet bench network`: leave it out");
  refuse_idle_options(arguments);
  force_isa(arguments.isa);
  const Precision precision = precision_of(arguments.precision);
  const Backend& backend = open_backend(arguments.device);
  const bool on_gpu = !backend.device->is_host();
  if (!on_gpu && precision == Precision::kTf32) fail_user("tf32 is a GPU's precision: --device cuda");
  const bool int8 = arguments.precision == "int8";
  if (on_gpu && int8) fail_user("training in int8 is for the CPU: leave --device out");
  const int threads = threads_or_all(arguments.threads);
  if (arguments.name == "infer")
    return (is_decoder(arguments.model) ? bench_decoder : bench_encoder)(arguments, threads);
  if (arguments.name == "peak") return print_peak(arguments, precision, threads);
  if (arguments.name == "generate") return print_generation(arguments, threads);
  if (arguments.name == "translate") return print_translation(arguments, threads);
  const Workload workload = make_workload(arguments.name, {.dropout = arguments.dropout, .batch = arguments.batch});
  if (!arguments.write_data.empty()) return write_data(workload, arguments.write_data), 0;
  MeasureOptions options{.precision = precision,
      .int8 = int8,
      .backend = &backend,
      .threads = threads,
      .seconds = arguments.seconds,
      .parts = !arguments.no_parts};
  options.store_fp32 = arguments.storage == "fp32",
  options.recompute = enum_value<RecomputeMode>(arguments.recompute).value_or(RecomputeMode::kAuto);
  if (!arguments.memory.empty()) {
    if (const std::string problem = byte_size_problem(arguments.memory); !problem.empty())
      fail_user("--memory ", arguments.memory, problem);
    options.memory = parse_byte_size(arguments.memory).value();
    // On the host the limit includes the process, whose batches and model exist already.
    if (!on_gpu) options.memory_beside = resident_bytes() - resident + kPlans;
  }
  if (arguments.attention_precision != "same")
    options.attention_precision = precision_of(arguments.attention_precision);
  if (arguments.profile) return print_text(profile(workload, options)), 0;
  if (!arguments.sweep.empty()) {
    if (on_gpu) fail_user("--sweep measures on the CPU: leave --device out");
    const uint64_t limit = options.memory > 0 ? std::exchange(options.memory, 0) : available_memory();
    return bench_sweep(arguments, options, limit, resident);
  }
  if (arguments.plan) return print_plan(arguments, workload, plan_step(workload, options));
  const Measurement m = measure(workload, options, resident);
  if (on_gpu) return print_device(arguments, workload, m, backend.device->info());
  ThreadPool pool(threads);
  print_results(arguments, workload, m, threads, measured_peak_gflops(precision, pool));
  return 0;
}
}  // namespace

void add_bench_command(Command& linnet) {
  auto [command, arguments] =
      linnet.subcommand("bench", "how fast this machine trains one of the reference workloads", bench);
  command.take("name", arguments.name, "the workload")
      .flag("--list", arguments.list, "name the workloads")
      .take("--precision", arguments.precision, "fp32 (default), bf16, the CPU's int8, or a GPU's tf32",
          {.choices = {"fp32", "tf32", "bf16", "int8"}})
      .take("--attention-precision", arguments.attention_precision,
          "bf16: attention alone multiplies in bf16, whatever --precision says (default: same)",
          {.choices = {"same", "bf16"}})
      .take("--storage", arguments.storage,
          "in what type activations are stored: auto (default) with --precision bf16 in bf16, or fp32 always",
          {.choices = {"auto", "fp32"}})
      .take("--recompute", arguments.recompute,
          "what of each layer the backward pass computes again: auto (default) what --memory asks for, none, "
          "attention or block",
          {.choices = {"auto", "none", "attention", "block"}})
      .take("--memory", arguments.memory,
          "the most memory that the process may take more than at its start, such as 2GiB; on a device, of its memory",
          {.type = "SIZE"})
      .take("--seconds", arguments.seconds, "how long to measure (default 5)", {.least = 0, .most = 1e6})
      .take("--batch", arguments.batch, "examples in a batch, instead of the workload's own",
          {.least = 1, .most = BatchSweep::kMost})
      .flag("--plan", arguments.plan, "only plan: memory, what is saved for the backward pass, what is computed again")
      .flag("--no-parts", arguments.no_parts, "do not measure forward pass and update apart")
      .take("--dropout", arguments.dropout, "instead of the workload's own", {.least = 0, .most = 0.99})
      .take("--sweep", arguments.sweep,
          "throughput and memory for several batches, such as batch=1,2,4,8, their knee, and the largest that fits",
          {.type = "KEY=LIST"})
      .take("--chart", arguments.chart, "of a sweep and of infer: also a chart, as SVG", {.type = "FILE"})
      .take("--write-data", arguments.write_data, "write the batches as safetensors and stop", {.type = "FILE"})
      .flag("--profile", arguments.profile, "where a step's time goes, op by op")
      .flag("--json", arguments.json, "one JSON object instead of lines for people")
      .take("--ranks", arguments.ranks, "of network: how many ranks to start on this machine",
          {.type = "N", .least = 2, .most = 4096})
      .take("--model", arguments.model,
          "of infer: a BERT or a decoder's folder, or gpt2-124m for its sizes with random weights (default: MiniLM's "
          "sizes, random weights); of translate: a run, T5 or Marian",
          {.type = "MODEL"})
      .take("--source", arguments.source, "of translate: the lines to translate", {.type = "FILE"})
      .take("--beam", arguments.beam, "of translate: beam size (default: the model's); 1 is greedy",
          {.least = 1, .most = 1024})
      .take("--translations", arguments.translations, "of translate: where the translations are written",
          {.type = "FILE"})
      .take("--batches", arguments.batches, "of infer: texts in a batch (default 1,8,32)", {.type = "LIST"})
      .take("--lengths", arguments.lengths,
          "of infer: tokens of a text (default 32,128,512); of a decoder: tokens that it writes (default 128)",
          {.type = "LIST"})
      .take("--precisions", arguments.precisions,
          "of infer: fp32, bf16, int8, static, int8-weights, int4-weights (default: all of them; a decoder has no "
          "static), qat=FOLDER of a model that was trained in int8, static=FOLDER of one that was calibrated",
          {.type = "LIST"})
      .take_quantize(arguments.quantize, arguments.keep)
      .take_threads(arguments.threads)
      .take_device(arguments.device)
      .take_isa(arguments.isa);
}
}  // namespace linnet
