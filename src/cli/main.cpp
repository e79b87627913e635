// The command line: parses arguments, runs one command, and turns an error into one line and an exit code.
#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <iostream>
#include <new>

#include "base/error.h"
#include "cli/commands.h"
#include "config/hints.h"

namespace {

// CLI11 only says that a command is missing; most often it is misspelt.
std::string problem_text(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  if (!app.get_subcommands().empty() || argc < 2 || argv[1][0] == '-') return error.what();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return std::string("there is no command '") + argv[1] + "' (did you mean " + linnet::nearest(argv[1], names) + "?)";
}

// What was printed must have arrived: a full disk shows here at the latest.
void check_output() {
  errno = 0;
  if (std::fflush(stdout) != 0 || std::ferror(stdout)) linnet::fail_system("cannot write to standard output");
}

int run(int argc, char** argv) {
  CLI::App app(
      "Linnet trains transformers and convolutional networks on CPUs: fast, in little memory, from one program.",
      "linnet");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("linnet ") + LINNET_VERSION);
  linnet::Action action;
  linnet::add_train_command(app, action);
  linnet::add_eval_command(app, action);
  linnet::add_translate_command(app, action);
  linnet::add_generate_command(app, action);
  linnet::add_export_command(app, action);
  linnet::add_plan_command(app, action);
  linnet::add_presets_command(app, action);
  linnet::add_info_command(app, action);
  linnet::add_convert_command(app, action);
  linnet::add_embed_command(app, action);
  linnet::add_demo_command(app, action);
  linnet::add_bench_command(app, action);
  linnet::add_tokenizer_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    const int code = app.exit(done);  // --help, --version
    std::cout.flush();
    check_output();
    return code;
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "linnet: %s (see linnet --help)\n", problem_text(app, error, argc, argv).c_str());
    return 2;
  }
  const int code = action();
  check_output();
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  // One heap: per-thread heaps would take memory nobody planned.
  mallopt(M_ARENA_MAX, 1);
  try {
    return run(argc, argv);
  } catch (const linnet::Error& error) {
    std::fprintf(stderr, "linnet: %s\n", error.what());
    return linnet::exit_code(error.kind());
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "linnet: out of memory\n");
    return 2;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "linnet: internal error: %s\n", error.what());
    return 70;
  }
}
