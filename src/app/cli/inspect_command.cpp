#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <numeric>
#include "app/cli/commands.h"
#include "app/cli/input_lines.h"
#include "base/files.h"
#include "base/log.h"
#include "tasks/inspection/inspect.h"

namespace linnet {
namespace {

struct InspectArguments {
  std::string model, out;
  std::optional<std::string> text, answer;
  int64_t steps = 32;
  int threads = 0;
  bool json = false;
};

// On one line, and to be seen: as the page shows it.
std::string visible(const std::string& token) {
  if (token.empty()) return "∅";
  std::string text;
  for (const char c : token) text += c == '\n' ? "↵" : c == '\t' ? "⇥" : std::string(1, c);
  return text.starts_with(' ') ? "␣" + text.substr(1) : text;
}

// " France +2.31": the tokens with the largest shares, of either sign.
std::string largest_shares(const Inspection& inspection, const InspectedAnswer& answer) {
  constexpr size_t kMost = 4;
  std::vector<std::pair<double, std::string>> all;
  for (size_t i = 0; i < answer.shares.size(); ++i)
    for (size_t t = 0; t < answer.shares[i].size(); ++t)
      all.emplace_back(answer.shares[i][t], inspection.sequences[i].tokens[t]);
  std::ranges::stable_sort(all, [](const auto& a, const auto& b) { return std::abs(a.first) > std::abs(b.first); });
  all.resize(std::min(all.size(), kMost));
  std::string text;
  for (const auto& [share, token] : all) {
    char number[32];
    std::snprintf(number, sizeof number, "%+.2f", share);
    text += (text.empty() ? "" : ", ") + visible(token) + " " + number;
  }
  return text;
}

void print_inspection(const Inspection& inspection) {
  for (const InspectedAnswer& answer : inspection.answers)
    std::printf("%s\t%.6f\t%s\n", visible(answer.text).c_str(), std::exp(answer.log_probability),
                largest_shares(inspection, answer).c_str());
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
  if (arguments.json) {
    std::printf("%s\n", inspection_json(inspection).c_str());
  } else {
    print_inspection(inspection);
    std::printf("%s\n", page.c_str());
  }
  return 0;
}

}  // namespace

void add_inspect_command(Command& linnet) {
  auto arguments = std::make_shared<InspectArguments>();
  linnet
      .subcommand("inspect",
                  "where a model's attention looks in a text, and which tokens its answer comes from: an HTML page; on "
                  "the terminal a line of answer, probability and the weightiest tokens")
      .take("model", arguments->model, "a run or model folder of a language model, a classifier, BERT or translation",
            {.required = true, .type = "MODEL"})
      .take("text", arguments->text, "the text (default: standard input)", {.type = "TEXT"})
      .take(
          "--answer", arguments->answer,
          "what to explain instead of the model's own answer: a class, how the text goes on, a translation, or a word "
          "for each [MASK]",
          {.type = "TEXT"})
      .take("-o,--out", arguments->out, "the page to write; -o for short (default inspect.html; with --json none)",
            {.type = "FILE"})
      .take("--steps", arguments->steps, "points at which gradients are taken (default 32); more are more exact",
            {.type = "N", .least = 1, .most = 4096})
      .flag("--json", arguments->json, "one JSON object with all weights instead of the lines")
      .take_threads(arguments->threads)
      .does([arguments] { return inspect(*arguments); });
}

}  // namespace linnet
