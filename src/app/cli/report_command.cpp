#include <cstdio>
#include <memory>
#include <set>
#include "app/cli/commands.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "training/run/run_record.h"

namespace linnet {
namespace {

struct ReportArguments {
  std::vector<std::string> runs;
  std::string out, title;
  bool overwrite = false;
};

constexpr const char* kDefaultPage = "report.html";

// A page in the current folder that nobody named may be one of other runs.
std::string page_of(const ReportArguments& arguments) {
  if (!arguments.out.empty()) return arguments.out;
  if (file_exists(kDefaultPage) && !arguments.overwrite)
    fail_user(std::string(kDefaultPage) + " exists; -o FILE names the page, --overwrite replaces it");
  return kDefaultPage;
}

// Runs of the same name in different folders are told apart by the folders' names.
void name_apart(std::vector<ReportRun>& runs, const std::vector<std::string>& folders) {
  std::multiset<std::string> names;
  for (const ReportRun& run : runs) names.insert(run.name);
  for (size_t i = 0; i < runs.size(); ++i)
    if (names.count(runs[i].name) > 1) runs[i].name = folders[i];
}

int report(const ReportArguments& arguments) {
  const std::string page = page_of(arguments);
  std::vector<ReportRun> runs;
  for (const std::string& folder : arguments.runs) runs.push_back(read_report_run(folder));
  name_apart(runs, arguments.runs);
  ReportTitle title{.title = arguments.title, .subtitle = "", .command = "report"};
  if (title.title.empty()) title.title = runs.size() == 1 ? runs[0].name : std::to_string(runs.size()) + " runs";
  title.subtitle = runs.size() == 1 ? "A training run" : joined(runs, ", ", &ReportRun::name);
  write_file_atomically(page, report_page(title, runs));
  std::printf("%s\n", page.c_str());
  return 0;
}

}  // namespace

void add_report_command(Command& linnet) {
  auto arguments = std::make_shared<ReportArguments>();
  linnet.subcommand("report", "one HTML page about a run, or several side by side: curves, memory, time, samples")
      .take("runs", arguments->runs, "run folders", {.required = true, .type = "RUN"})
      .take("-o,--out", arguments->out, "the page to write; -o for short (default report.html, if there is none)",
            {.type = "FILE"})
      .flag("--overwrite", arguments->overwrite, "also where report.html exists already")
      .take("--title", arguments->title, "its title (default: the run's name)", {.type = "TEXT"})
      .does([arguments] { return report(*arguments); });
}

}  // namespace linnet
