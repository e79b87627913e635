// What commands take from the command line. CLI11 stands behind it, in command_line.cpp alone: each file that includes
// its header takes five seconds more to compile.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <string_view>
#include <type_traits>
#include <utility>
#include "tasks/model_load.h"

namespace CLI {
class App;
}

namespace linnet {

// What commands were declared to take, and what tells about it: help, manual pages, shell completion.

struct ArgumentDescription {
  std::string name;  // "--beam", or "model" for an argument by its position
  std::string help;
  std::string type = "";                 // of the value: "FILE", "N"
  std::vector<std::string> values = {};  // that it must have, or may well have; empty: anything
  bool is_required = false;
  bool is_list = false;  // may be given several times
  bool is_flag = false;  // takes no value

  bool is_option() const { return name.starts_with('-'); }
};

struct CommandDescription {
  std::string name, help;
  std::vector<ArgumentDescription> arguments;
  std::list<CommandDescription> subcommands;  // a list: a Command keeps the address of its description
};

// Calls visit(path, command) for the root (an empty path) and every command below it, in the order of declaration.
template <class Visit>
void for_each_command(const CommandDescription& command, const Visit& visit,
                      const std::vector<std::string>& path = {}) {
  visit(path, command);
  for (const CommandDescription& child : command.subcommands) {
    std::vector<std::string> below = path;
    below.push_back(child.name);
    for_each_command(child, visit, below);
  }
}

// What `linnet help COMMAND` and `linnet COMMAND --help` print. `path`: the names that lead from `root` to the command.
// It must be one of root's.
std::string help_page(const CommandDescription& root, const std::vector<std::string>& path);

// The name of an argument by its position as help writes it: "model" is MODEL.
std::string placeholder(const ArgumentDescription& argument);

// Makes a shell complete what the commands declared. `shell`: bash, zsh or fish.
std::string completion_script(const CommandDescription& root, const std::string& shell);

struct TextGenerationOptions;  // tasks/generation/generation_choice.h

// What the chosen command does; returns the exit code.
using Action = std::function<int()>;

struct ValueRules {
  bool required = false;
  const char* type = "";                        // of the value, in the help: "FILE"
  std::vector<std::string> choices = {};        // the value must be one of these
  std::vector<std::string> suggestions = {};    // what shell completion offers
  std::optional<double> least = {}, most = {};  // both or none; of numbers
  bool show_default = false;
};

// The places of values outlive the parsing and the action.
class Command {
 public:
  Command(CLI::App& app, Action& chosen, CommandDescription& described)
      : app_(&app), chosen_(&chosen), described_(&described) {}

  // "--beam", "-o,--out" with a short form, or "model" for an argument by its position. An optional stays empty when
  // the argument is not given. A vector takes one value each time its option is given, or all positional arguments that
  // are left. T: std::string, int, int64_t, uint64_t, double, an optional string, int64_t or double, or a vector of
  // strings.
  template <class T>
  Command& take(const char* name, T& value, const char* help, const ValueRules& rules = {});
  Command& flag(const char* name, bool& value, const char* help);

  // What several commands take.
  template <class T>
  Command& take_threads(T& value) {
    return take("--threads", value, "0: what the machine and its cgroup allow", {.least = 0, .most = 512});
  }
  Command& take_device(std::string& value, const char* help = "cpu (default), cuda or cuda:N");
  Command& take_isa(std::string& value);
  // --quantize and --keep: folder_quantization(), or with `packs` of weights that are written.
  Command& take_quantize(std::string& word, std::vector<std::string>& keep, bool packs = false);
  // All that says how a model is loaded, but for adapters and the draft model.
  Command& take_load(ModelLoad& load) {
    return take_threads(load.threads).take_device(load.device).take_quantize(load.quantize, load.keep);
  }
  Command& take_draft(ModelLoad& load);
  // --source-language and --target-language, of models of many languages.
  Command& take_languages(std::string& source, std::string& target);
  // The words of parse_adapters().
  Command& take_adapters(std::vector<std::string>& words, bool by_request = false);

  // How a token is drawn: --temperature to --presence-penalty, without --seed.
  Command& take_sampling(TextGenerationOptions& options);

  // One of these must follow this command.
  Command subcommand(const char* name, const char* help);
  void does(Action action);
  // A subcommand that does run(arguments), and its arguments, which it keeps.
  template <class Arguments>
  std::pair<Command, std::remove_const_t<Arguments>&> subcommand(const char* name, const char* help,
                                                                 int (*run)(Arguments&)) {
    const auto kept = std::make_shared<std::remove_const_t<Arguments>>();
    Command command = subcommand(name, help);
    command.does([run, kept] { return run(*kept); });
    return {command, *kept};
  }

 private:
  CLI::App* app_;
  Action* chosen_;
  CommandDescription* described_;  // what was declared so far, for help, manual pages and completion
};

// "1,2,4" -> {1, 2, 4}; empty when it is not such a list of numbers above 0.
std::vector<int64_t> positive_numbers(std::string_view text);

// "linnet 0.1.0 (commit 83746a1f0c, Release, GCC 12.2.0)"; without the commit where the sources were not in git.
std::string build_version();

// Parses and does what the chosen command does. --help and --version print and give 0; an error is one line and 2. The
// commands `help`, `man` and `completion` are added to those that `declare` declares.
int run_command_line(int argc, char** argv, const std::function<void(Command&)>& declare);

// The commands about the commands: help, man and completion. All three are made from what the commands declared.

// Call after all other commands are declared. `described` must outlive the parsing and the action.
void add_reference_commands(Command& linnet, const CommandDescription& described);

}  // namespace linnet
