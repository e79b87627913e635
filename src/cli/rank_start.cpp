#include "cli/rank_start.h"

#include <unistd.h>

#include <filesystem>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "comm/agreement.h"
#include "comm/world.h"

namespace linnet {
namespace {

// This process's arguments without "--ranks N" and "--ranks=N".
std::vector<std::string> arguments_without_ranks() {
  const std::string all = read_file("/proc/self/cmdline");
  std::vector<std::string> arguments;
  bool is_number = false;
  for (size_t at = 0; at < all.size();) {
    const std::string argument = all.substr(at, all.find('\0', at) - at);
    at += argument.size() + 1;
    if (!is_number && argument != "--ranks" && !argument.starts_with("--ranks=")) arguments.push_back(argument);
    is_number = !is_number && argument == "--ranks";
  }
  return arguments;
}

}  // namespace

void start_ranks(int ranks) {
  if (const auto starter = find_starter())
    fail_user("--ranks starts the ranks itself; " + starter->name + " has started this process already");
  std::vector<std::string> arguments = arguments_without_ranks();
  arguments[0] = std::filesystem::read_symlink("/proc/self/exe").string();
  std::vector<std::string> command = mpirun_command(ranks, arguments);
  std::vector<char*> words;
  for (std::string& word : command) words.push_back(word.data());
  words.push_back(nullptr);
  execv(words[0], words.data());
  fail_system("cannot start " + command[0]);
}

int run_as_rank(FunctionRef<int(Communicator& world)> body) {
  Communicator& world = join_world();
  if (world.size() == 1) return body(world);
  if (world.rank() > 0) silence_log();
  try {
    const int code = body(world);
    world.leave();
    return code;
  } catch (const AgreedError& error) {
    world.leave();
    if (world.rank() == 0) throw;
    return exit_code(error.kind());
  } catch (const Error& error) {
    throw Error(error.kind(), "rank " + std::to_string(world.rank()) + ": " + error.what());
  }
}

}  // namespace linnet
