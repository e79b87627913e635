// The command line: parses arguments, runs one command, and turns an error into one line and an exit code.
#include <CLI/CLI.hpp>
#include <malloc.h>

#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/commands.h"

namespace {

int run(int argc, char** argv) {
  CLI::App app("Linnet trains transformers on CPUs: fast, in little memory, from one program.", "linnet");
  app.require_subcommand(1);
  app.set_version_flag("--version", std::string("linnet ") + LINNET_VERSION);
  linnet::Action action;
  linnet::add_train_command(app, action);
  linnet::add_eval_command(app, action);
  linnet::add_translate_command(app, action);
  linnet::add_plan_command(app, action);
  linnet::add_presets_command(app, action);
  linnet::add_info_command(app, action);
  linnet::add_demo_command(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& done) {
    return app.exit(done);  // --help, --version
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "linnet: %s (see linnet --help)\n", error.what());
    return 2;
  }
  return action();
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
