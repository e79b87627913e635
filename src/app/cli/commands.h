// The program's commands and the arguments they share. Only command_line.cpp includes CLI11, which compiles slowly.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include "base/functions.h"
#include "tasks/model_load.h"
#include "training/run/config_choice.h"

namespace CLI {
class App;
}

namespace linnet {
// Declared commands and arguments, for help, manual pages and shell completion.

struct ArgumentDescription {
  std::string name;  // "--beam", or "model" for a positional argument
  std::string help;
  std::string type = "";                 // of the value: "FILE", "N"
  std::vector<std::string> values = {};  // allowed or suggested values; empty: anything
  bool is_required = false;
  bool is_list = false;  // may be given several times
  bool is_flag = false;  // takes no value

  bool is_option() const { return name.starts_with('-'); }
};

struct CommandDescription {
  std::string name, help;
  std::vector<ArgumentDescription> arguments;
  std::list<CommandDescription> subcommands;  // a list: a Command keeps its description's address
};

// Calls visit(path, command) for the root (an empty path) and all commands below, in declaration order.
template <class Visit> void for_each_command(
    const CommandDescription& command, const Visit& visit, const std::vector<std::string>& path = {}) {
  visit(path, command);
  for (const CommandDescription& child : command.subcommands) {
    std::vector<std::string> below = path;
    below.push_back(child.name);
    for_each_command(child, visit, below);
  }
}

// The text of `linnet help COMMAND` and `linnet COMMAND --help`. `path`: names from `root` to one of its commands.
std::string help_page(const CommandDescription& root, const std::vector<std::string>& path);

struct TextGenerationOptions;  // tasks/generation/text_request.h

// Runs the chosen command; returns the exit code.
using Action = std::function<int()>;

struct ValueRules {
  bool required = false;
  const char* type = "";                        // the value's name in help: "FILE"
  std::vector<std::string> choices = {};        // the only allowed values
  std::vector<std::string> suggestions = {};    // offered by shell completion
  std::optional<double> least = {}, most = {};  // both or none; for numbers
  bool show_default = false;
};

// Values must outlive the parsing and the action.
class Command {
 public:
  Command(CLI::App& app, Action& chosen, CommandDescription& described)
      : app_(&app), chosen_(&chosen), described_(&described) {}

  // "--beam", "-o,--out" with a short form, or "model" for a positional argument. Optional values stay empty if not
  // given. A vector takes one value for each use of its option, or all remaining positional arguments. T: std::string,
  // int, int64_t, uint64_t, double, an optional string, int64_t or double, or a vector of strings.
  template <class T> Command& take(const char* name, T& value, const char* help, const ValueRules& rules = {});
  Command& flag(const char* name, bool& value, const char* help);

  // Arguments of several commands.
  template <class T> Command& take_threads(T& value) {
    return take("--threads", value, "0: what the machine and its cgroup allow", {.least = 0, .most = 512});
  }
  Command& take_device(std::string& value, const char* help = "cpu (default), cuda or cuda:N");
  Command& take_isa(std::string& value);
  // --quantize and --keep for folder_quantization(), or with `packs` for weights to write.
  Command& take_quantize(std::string& word, std::vector<std::string>& keep, bool packs = false);
  // How a model is loaded, except adapters and the draft model.
  Command& take_load(ModelLoad& load) {
    return take_threads(load.threads).take_device(load.device).take_quantize(load.quantize, load.keep);
  }
  Command& take_draft(ModelLoad& load);
  template <class T> Command& take_columns(T& text, T& pair, T& label) {
    return take("--text-column", text,
        "the column of a table with the text, or of translations the source (the key text_column)", {.type = "NAME"})
        .take("--pair-column", pair, "the same of the second text of a pair", {.type = "NAME"})
        .take("--label-column", label, "the same of the label, or of translations the target", {.type = "NAME"});
  }
  // --source-language and --target-language, for multilingual models.
  Command& take_languages(std::string& source, std::string& target);
  // --adapter, for parse_adapters().
  Command& take_adapters(std::vector<std::string>& words, bool by_request = false);

  // Sampling options from --temperature to --presence-penalty, without --seed.
  Command& take_sampling(TextGenerationOptions& options);

  // One of the declared subcommands must follow this command.
  Command subcommand(const char* name, const char* help);
  void does(Action action);
  // A subcommand with its arguments, which it keeps; its action is run(arguments).
  template <class Arguments> std::pair<Command, std::remove_const_t<Arguments>&> subcommand(
      const char* name, const char* help, int (*run)(Arguments&)) {
    const auto kept = std::make_shared<std::remove_const_t<Arguments>>();
    Command command = subcommand(name, help);
    command.does([run, kept] { return run(*kept); });
    return {command, *kept};
  }

 private:
  CLI::App* app_;
  Action* chosen_;
  CommandDescription* described_;  // the declarations so far
};

// "1,2,4" -> {1, 2, 4}; empty unless it lists numbers above 0.
std::vector<int64_t> positive_numbers(std::string_view text);

// "linnet 0.1.0 (commit 83746a1f0c, Release, GCC 12.2.0)"; without the commit if built outside git.
std::string build_version();

// Parses and runs the chosen command. --help and --version print and return 0; an error is one line and 2. Adds the
// commands `help`, `man` and `completion` to those of `declare`.
int run_command_line(int argc, char** argv, const std::function<void(Command&)>& declare);

// The commands help, man and completion, generated from the declarations.

// Call after all other commands are declared. `described` must outlive the parsing and the action.
void add_reference_commands(Command& linnet, const CommandDescription& described);

class Communicator;
class OnnxNetwork;

struct ConfigArguments : ConfigChoice {
  void declare(Command& command);
  // Also selects the configuration's instruction set for the command.
  Config load(bool resume = false) const;
};

std::vector<std::string> preset_names();

// Prints the size, inputs and outputs of a network that was read from ONNX.
void print_network(const std::string& path, const OnnxNetwork& network);

// --ranks N: runs this command N times by mpirun without that option; returns its exit code. A stop signal makes all
// ranks save and end; a second one ends them within seconds. They also end if this process is killed. `restarts`: how
// often dead ranks are restarted with --resume.
int start_ranks(int ranks, int restarts);
// Runs `body` on the starter's ranks; returns the exit code. Rank 0 alone prints an error that all ranks have.
int run_as_rank(FunctionRef<int(Communicator& world)> body);

// `linnet bench network`: speed of messages between ranks, for `linnet plan --network`; returns the exit code. Starts
// `ranks` ranks; 0: measures the starter's. `threads` threads of each rank compute, to see if messages still move.
int bench_network(int64_t ranks, int threads, bool json);

// All commands in the order of the help page. add_NAME_command() declares a command (docs/add_a_command.md).
// clang-format off
#define LINNET_COMMANDS(COMMAND) \
  COMMAND(train) COMMAND(sweep) COMMAND(eval) COMMAND(predict) COMMAND(score) COMMAND(translate) COMMAND(generate) COMMAND(chat) \
  COMMAND(serve) COMMAND(run) COMMAND(pack) COMMAND(quantize) COMMAND(export) COMMAND(import) COMMAND(onnx) COMMAND(plan) \
  COMMAND(check) COMMAND(profile) COMMAND(report) COMMAND(inspect) COMMAND(runs) COMMAND(average) COMMAND(presets) \
  COMMAND(info) COMMAND(convert) COMMAND(embed) COMMAND(demo) COMMAND(bench) COMMAND(tokenizer)
// clang-format on

#define LINNET_DECLARE(NAME) void add_##NAME##_command(Command& linnet);
LINNET_COMMANDS(LINNET_DECLARE)
#undef LINNET_DECLARE
}  // namespace linnet
