#include <algorithm>
#include <cstdio>
#include <ranges>
#include "app/bench/bar_chart.h"
#include "app/bench/generation_bench.h"
#include "app/bench/inference_bench.h"
#include "app/cli/bench_parts.h"
#include "base/error.h"
#include "base/files.h"
#include "base/json.h"
#include "engine/kernels/isa.h"
#include "models/families/config_file.h"

namespace linnet {
namespace {

constexpr const char* kRandomDecoder = "gpt2-124m";

std::vector<int64_t> numbers_of(const char* option, const std::string& text) {
  const std::vector<int64_t> numbers = positive_numbers(text);
  if (numbers.empty()) fail_user(std::string(option) + " " + text + " is no list of numbers, such as 1,8,32");
  return numbers;
}

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (const auto word : std::views::split(text, ',')) words.emplace_back(word.begin(), word.end());
  return words;
}

bool is_decoder(const std::string& model) {
  if (model.empty()) return false;
  return model == kRandomDecoder || ConfigFile(model + "/config.json").text("model_type", "") != "bert";
}

std::string number(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

void write_chart(const InferRequest& request, const std::string& title, const std::vector<BarGroup>& groups) {
  if (request.chart.empty()) return;
  write_file_atomically(request.chart, bar_chart(title, groups));
  if (!request.json) std::printf("written to %s\n", request.chart.c_str());
}

void print_latency_row(const InferenceRow& row, double speed) {
  std::printf("%-13s %5lld %6lld %9.2f %9.2f %9.2f %11.1f %7s %8.2f %9.1f %10.1f %9.1f\n", row.precision.c_str(),
              static_cast<long long>(row.batch), static_cast<long long>(row.length), row.p50 * 1e3, row.p95 * 1e3,
              row.p99 * 1e3, row.sequences, speed > 0 ? number("%.2fx", speed).c_str() : "", row.load_seconds,
              row.file_mb, row.weight_mb, row.memory);
  std::fflush(stdout);
}

// Rows of a batch and length stand together; the first precision's speed is 1 where it is fp32.
int bench_encoder(const InferRequest& request, int threads) {
  InferenceBenchOptions options{.folder = request.model, .seconds = request.seconds / 5, .threads = threads};
  if (!request.batches.empty()) options.batches = numbers_of("--batches", request.batches);
  if (!request.lengths.empty()) options.lengths = numbers_of("--lengths", request.lengths);
  if (!request.precisions.empty()) options.precisions = words_of(request.precisions);
  const std::string name = request.model.empty() ? "6 layers of 384 as in MiniLM, random weights" : request.model;
  const std::string title =
      name + ", " + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + current_isa();
  if (!request.json)
    std::printf("%s; latency of a batch in ms\n%-13s %5s %6s %9s %9s %9s %11s %7s %8s %9s %10s %9s\n", title.c_str(),
                "precision", "batch", "length", "p50", "p95", "p99", "sequences/s", "speed", "load s", "file MB",
                "weights MB", "memory MB");
  Json rows = Json::array();
  std::vector<BarGroup> groups;
  double fp32 = 0;
  measure_inference(options, [&](const InferenceRow& row) {
    const std::string group =
        "batch of " + std::to_string(row.batch) + ", " + std::to_string(row.length) + " tokens: sequences a second";
    if (groups.empty() || groups.back().name != group) groups.push_back({group, {}}), fp32 = 0;
    if (row.precision == "fp32") fp32 = row.sequences;
    const double speed = fp32 > 0 ? row.sequences / fp32 : 0;
    groups.back().bars.push_back({row.precision, row.sequences,
                                  number("%.1f", row.sequences) + (speed > 0 ? number(" (%.2fx)", speed) : "") +
                                      number(", p99 %.1f ms", row.p99 * 1e3)});
    if (!request.json) print_latency_row(row, speed);
    rows.push_back({{"precision", row.precision},
                    {"batch", row.batch},
                    {"length", row.length},
                    {"p50_ms", row.p50 * 1e3},
                    {"p95_ms", row.p95 * 1e3},
                    {"p99_ms", row.p99 * 1e3},
                    {"sequences_per_second", row.sequences},
                    {"speed_of_fp32", speed > 0 ? Json(speed) : Json(nullptr)},
                    {"load_seconds", row.load_seconds},
                    {"file_mb", row.file_mb},
                    {"weight_mb", row.weight_mb},
                    {"memory_mb", row.memory},
                    {"runs", row.runs}});
  });
  const Json json{{"workload", "infer"},
                  {"model", request.model.empty() ? "minilm-l6-random" : request.model},
                  {"threads", threads},
                  {"isa", current_isa()},
                  {"rows", rows}};
  if (request.json) std::printf("%s\n", json.dump().c_str());
  write_chart(request, title, groups);
  return 0;
}

int bench_decoder(const InferRequest& request, int threads) {
  DecodingBenchOptions options{
      .folder = request.model == kRandomDecoder ? "" : request.model, .seconds = request.seconds, .threads = threads};
  if (!request.batches.empty()) fail_user("--batches is of encoders: a decoder writes one text here");
  if (!request.precisions.empty()) options.precisions = words_of(request.precisions);
  if (!request.lengths.empty()) {
    const std::vector<int64_t> lengths = numbers_of("--lengths", request.lengths);
    if (lengths.size() > 1) fail_user("--lengths of a decoder is one number: the tokens that it writes");
    options.tokens = lengths[0];
  }
  const DecodingMeasurement m = measure_decoding(options);
  const auto plain = std::ranges::find(m.rows, "fp32", &DecodingRow::precision);
  const double fp32 = plain == m.rows.end() ? 0 : plain->tokens_per_second;
  const std::string title = (options.folder.empty() ? "GPT-2's 124M, random weights" : options.folder) + ", " +
                            std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") + current_isa();
  if (!request.json)
    std::printf(
        "%s; %lld tokens behind %lld; memory is read at %.1f GB/s\n%-13s %9s %7s %8s %8s %8s %9s %8s %9s %10s %9s\n",
        title.c_str(), static_cast<long long>(options.tokens), static_cast<long long>(kGenerationPrompt),
        m.bandwidth * 1e-9, "precision", "tokens/s", "speed", "p50 ms", "p95 ms", "p99 ms", "of memory", "load s",
        "file MB", "weights MB", "memory MB");
  Json rows = Json::array();
  BarGroup group{"tokens a second, one text", {}};
  for (const DecodingRow& row : m.rows) {
    const double speed = fp32 > 0 ? row.tokens_per_second / fp32 : 0;
    if (!request.json)
      std::printf("%-13s %9.1f %7s %8.2f %8.2f %8.2f %8.0f%% %8.2f %9.1f %10.1f %9.1f\n", row.precision.c_str(),
                  row.tokens_per_second, speed > 0 ? number("%.2fx", speed).c_str() : "", row.p50 * 1e3, row.p95 * 1e3,
                  row.p99 * 1e3, 100 * row.share_of_bound, row.load_seconds, row.file_mb, row.weight_mb, row.memory);
    group.bars.push_back({row.precision, row.tokens_per_second,
                          number("%.1f", row.tokens_per_second) + (speed > 0 ? number(" (%.2fx)", speed) : "") +
                              number(", %.0f%% of what memory allows", 100 * row.share_of_bound)});
    rows.push_back({{"precision", row.precision},
                    {"tokens_per_second", row.tokens_per_second},
                    {"speed_of_fp32", speed > 0 ? Json(speed) : Json(nullptr)},
                    {"p50_ms", row.p50 * 1e3},
                    {"p95_ms", row.p95 * 1e3},
                    {"p99_ms", row.p99 * 1e3},
                    {"share_of_bound", row.share_of_bound},
                    {"load_seconds", row.load_seconds},
                    {"file_mb", row.file_mb},
                    {"weight_mb", row.weight_mb},
                    {"memory_mb", row.memory},
                    {"texts", row.texts}});
  }
  const Json json{{"workload", "infer"}, {"model", request.model}, {"tokens", options.tokens},
                  {"threads", threads},  {"isa", current_isa()},   {"bandwidth_gb_per_second", m.bandwidth * 1e-9},
                  {"rows", rows}};
  if (request.json) std::printf("%s\n", json.dump().c_str());
  write_chart(request, title, {group});
  return 0;
}

}  // namespace

int bench_infer(const InferRequest& request, int threads) {
  return is_decoder(request.model) ? bench_decoder(request, threads) : bench_encoder(request, threads);
}

}  // namespace linnet
