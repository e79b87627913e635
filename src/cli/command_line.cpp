#include "cli/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <type_traits>

#include "config/hints.h"

namespace linnet {
namespace {

template <class T>
struct NumberOf {
  using Type = T;
};
template <class T>
struct NumberOf<std::optional<T>> {
  using Type = T;
};

// CLI11 only says that a command is missing; most often it is misspelt.
std::string problem_text(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (!app.get_subcommands().empty() || argc < 2 || argv[1][0] == '-') return error.what();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return std::string("there is no command '") + argv[1] + "' (did you mean " + nearest(argv[1], names) + "?)";
}

}  // namespace

template <class T>
Command& Command::take(const char* name, T& value, const char* help, const ValueRules& rules) {
  CLI::Option* option = app_->add_option(name, value, help);
  option->required(rules.required);
  if (*rules.type) option->type_name(rules.type);
  if (!rules.choices.empty()) option->check(CLI::IsMember(rules.choices));
  using Number = typename NumberOf<T>::Type;
  if constexpr (std::is_arithmetic_v<Number>)
    if (rules.least && rules.most)
      option->check(CLI::Range(static_cast<Number>(*rules.least), static_cast<Number>(*rules.most)));
  if (rules.show_default) option->capture_default_str();
  if constexpr (std::is_same_v<T, std::vector<std::string>>)
    if (name[0] == '-') option->take_all()->expected(1);
  return *this;
}
template Command& Command::take(const char*, std::string&, const char*, const ValueRules&);
template Command& Command::take(const char*, int&, const char*, const ValueRules&);
template Command& Command::take(const char*, int64_t&, const char*, const ValueRules&);
template Command& Command::take(const char*, uint64_t&, const char*, const ValueRules&);
template Command& Command::take(const char*, double&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<std::string>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<int64_t>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::optional<double>&, const char*, const ValueRules&);
template Command& Command::take(const char*, std::vector<std::string>&, const char*, const ValueRules&);

Command& Command::flag(const char* name, bool& value, const char* help) {
  app_->add_flag(name, value, help);
  return *this;
}

Command& Command::take_device(std::string& value, const char* help) {
  return take("--device", value, help, {.type = "NAME"});
}
Command& Command::take_isa(std::string& value) {
  return take("--isa", value, "instruction set of the kernels (see `linnet info`)", {.type = "NAME"});
}

Command Command::subcommand(const char* name, const char* help) {
  app_->require_subcommand(1);
  return {*app_->add_subcommand(name, help), *chosen_};
}

void Command::does(Action action) {
  app_->callback([chosen = chosen_, action = std::move(action)] { *chosen = action; });
}

int run_command_line(int argc, char** argv, const std::function<void(Command&)>& declare) {
  CLI::App app(
      "Linnet trains transformers and convolutional networks on CPUs and NVIDIA GPUs: fast, in little memory, from one "
      "program.",
      "linnet");
  app.set_version_flag("--version", std::string("linnet ") + LINNET_VERSION);
  Action chosen;
  Command root(app, chosen);
  declare(root);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    const int code = app.exit(done);  // --help, --version
    std::cout.flush();
    return code;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "linnet: %s (see linnet --help)\n", problem_text(app, error, argc, argv).c_str());
    return 2;
  }
  return chosen();
}

}  // namespace linnet
