// `linnet info`, `linnet presets` and `linnet inspect`.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "app/cli/print-inl.h"
#include "base/log.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/processor.h"
#include "models/families/pretrained.h"
#include "tasks/task_table.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"
#include "training/trainer/trainer.h"

namespace linnet {
namespace {
struct InfoArguments {
  std::string folder, device;
};

void describe_device(const std::string& name) {
  const Device& opened = *open_backend(name).device;
  if (opened.is_host()) return print("cpu: {} kernels\n", current_isa());
  const DeviceInfo& device = opened.info();
  print("{} ({}), {:.1f} of {:.1f} GB free\n", device.name, device.detail, static_cast<double>(device.free_bytes) / 1e9,
      static_cast<double>(device.memory_bytes) / 1e9);
}

void describe_program() {
  print("{}\n", build_version());
  print("instruction sets  {} (best first; --isa chooses)\n", joined(available_isas(), " "));
  const bool bf16 = cpu_precision(Precision::kBf16) == Precision::kBf16;
  print("precision         {}\n", bf16 ? "fp32, bf16" : "fp32 (bf16 is computed in fp32: no instructions for it)");
  print("threads           {}\n", available_threads());
  print("memory            {:.1f} GB available\n", static_cast<double>(available_memory()) / 1e9);
  print("libraries         {}\n", LINNET_LIBRARIES);
}

int info(const InfoArguments& arguments) {
  const std::string& folder = arguments.folder;
  if (!arguments.device.empty()) describe_device(arguments.device);
  else if (folder.empty()) describe_program();
  else print_text(RunFolder(folder).has_config() ? describe_run(folder) : describe_pretrained(folder));
  return 0;
}

int print_presets(std::string& name) {
  if (name.empty()) {
    for (const Preset& preset : presets()) print("{:<12} {}\n", preset.name, preset.description);
    return 0;
  }
  if (!is_preset(name)) fail_user("there is no preset '", name, "'; `linnet presets` lists them");
  print_text(to_toml(load_config(name), true));
  return 0;
}

struct InspectArguments {
  std::string model, out;
  std::optional<std::string> text, answer;
  int64_t steps = 32;
  int threads = 0;
  bool json = false;
};

// A token on one line with visible blanks, as in the page.
std::string visible(const std::string& token) {
  if (token.empty()) return "∅";
  std::string text;
  for (const char c : token) text += c == '\n' ? "↵" : c == '\t' ? "⇥" : std::string(1, c);
  return text.starts_with(' ') ? "␣" + text.substr(1) : text;
}

// " France +2.31": the tokens with the largest absolute shares.
std::string largest_shares(const Inspection& inspection, const InspectedAnswer& answer) {
  constexpr size_t kMost = 4;
  std::vector<std::pair<double, std::string>> all;
  for (size_t i = 0; i < answer.shares.size(); ++i)
    for (size_t t = 0; t < answer.shares[i].size(); ++t)
      all.emplace_back(answer.shares[i][t], inspection.sequences[i].tokens[t]);
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  all.resize(std::min(all.size(), kMost));
  std::string text;
  for (const auto& [share, token] : all)
    text += fmt::format("{}{} {:+.2f}", text.empty() ? "" : ", ", visible(token), share);
  return text;
}

int inspect(const InspectArguments& arguments) {
  InspectOptions options{
      .text = "", .answer = arguments.answer, .steps = arguments.steps, .threads = arguments.threads};
  options.text = arguments.text ? *arguments.text : read_standard_input("; give the text as an argument");
  while (!arguments.text && (options.text.ends_with('\n') || options.text.ends_with('\r'))) options.text.pop_back();
  const Inspection inspection = inspect_model(arguments.model, options);
  const std::string page = !arguments.out.empty() || arguments.json ? arguments.out : "inspect.html";
  if (!page.empty() && file_exists(page)) log_info("replaces " + page);
  if (!page.empty()) write_file_atomically(page, inspection_page(inspection));
  for (const InspectedAnswer& answer : inspection.answers)
    if (!arguments.json)
      print("{}\t{:.6f}\t{}\n", visible(answer.text), std::exp(answer.log_probability),
          largest_shares(inspection, answer));
  print("{}\n", arguments.json ? inspection_json(inspection) : page);
  return 0;
}
}  // namespace

void add_info_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand(
      "info", "version, CPU features, threads, memory, libraries; or what a run or model folder holds", info);
  command
      .take("MODEL", arguments.folder, "a run folder, or a model folder (config.json, model.safetensors)",
          {.type = "MODEL"})
      .take_device(arguments.device, "opens a GPU (cuda, cuda:N) and says what it is");
}

void add_presets_command(Command& linnet) {
  auto [command, name] =
      linnet.subcommand("presets", "list the presets, or print one as a commented configuration", print_presets);
  command.take("name", name, "of a preset", {.suggestions = preset_names()});
}

void add_inspect_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("inspect",
      "where a model's attention looks in a text, and which tokens its answer comes from: an HTML "
      "page; on the terminal a line of answer, probability and the weightiest tokens",
      inspect);
  command
      .take("model", arguments.model, "a run or model folder of a language model, a classifier, BERT or translation",
          {.required = true, .type = "MODEL"})
      .take("text", arguments.text, "the text (default: standard input)", {.type = "TEXT"})
      .take("--answer", arguments.answer,
          "what to explain instead of the model's own answer: a class, how the text goes on, a translation, or a "
          "word for each [MASK]",
          {.type = "TEXT"})
      .take("-o,--out", arguments.out, "the page to write; -o for short (default inspect.html; with --json none)",
          {.type = "FILE"})
      .take("--steps", arguments.steps, "points at which gradients are taken (default 32); more are more exact",
          {.type = "N", .least = 1, .most = 4096})
      .flag("--json", arguments.json, "one JSON object with all weights instead of the lines")
      .take_threads(arguments.threads);
}
}  // namespace linnet
