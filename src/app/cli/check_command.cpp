#include <algorithm>
#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "base/error.h"
#include "base/json.h"
#include "tasks/check_subject.h"
#include "tasks/task_table.h"
#include "training/run/run_folder.h"
#include "training/run/run_reporter.h"

namespace linnet {
namespace {

struct CheckArguments : ConfigArguments {
  bool json = false, replay = false;
};

const char* verdict_name(Verdict verdict) {
  return verdict == Verdict::kPass ? "pass" : verdict == Verdict::kFail ? "FAIL" : "skip";
}

void print_checks(const CheckLine& line) {
  std::printf("%s  %-28s  %s\n", verdict_name(line.verdict), line.name.c_str(), line.figure.c_str());
  std::fflush(stdout);
}

int replay(const CheckArguments& arguments) {
  if (!RunFolder(arguments.config).has_config())
    fail_user("'" + arguments.config + "' is no run folder: --replay shows a step that a run has kept");
  const Config config = arguments.load(true);
  const std::unique_ptr<TrainingTask> task = start_training_task(config, arguments.config);
  std::printf("%s\n", replay_anomaly(arguments.config, *task).c_str());
  return 0;
}

int check(const CheckArguments& arguments) {
  if (arguments.replay) return replay(arguments);
  TaskCheck task(arguments.load());
  const std::vector<CheckLine> lines =
      run_checks(task.subject(), arguments.json ? std::function<void(const CheckLine&)>{} : print_checks);
  const auto failed = std::ranges::count(lines, Verdict::kFail, &CheckLine::verdict);
  if (arguments.json) {
    Json json{{"failed", failed}, {"checks", Json::array()}};
    for (const CheckLine& line : lines)
      json["checks"].push_back({{"name", line.name},
                                {"verdict", line.verdict == Verdict::kFail ? "fail" : verdict_name(line.verdict)},
                                {"figure", line.figure}});
    std::printf("%s\n", json.dump(1).c_str());
  }
  return failed > 0 ? 1 : 0;
}

}  // namespace

void add_check_command(Command& linnet) {
  auto arguments = std::make_shared<CheckArguments>();
  Command command =
      linnet.subcommand("check", "whether a model is sane, before it is trained: exit code 1 if a check fails");
  arguments->declare(command);
  command.flag("--replay", arguments->replay, "of a run: show the step again that --detect-anomaly has kept")
      .flag("--json", arguments->json, "one JSON object instead of lines")
      .does([arguments] { return check(*arguments); });
}

}  // namespace linnet
