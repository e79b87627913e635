#include <cstdio>
#include <memory>
#include "app/cli/command_description.h"
#include "app/cli/command_line.h"
#include "base/error.h"
#include "base/files.h"
#include "base/text.h"
#include "config/hints.h"

namespace linnet {
namespace {

// The command must be there; a misspelt one is told with the nearest.
void check_command(const CommandDescription& root, const std::vector<std::string>& path) {
  for (size_t size = 1; size <= path.size(); ++size) {
    const std::vector<std::string> part(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(size));
    if (find_command(root, part)) continue;
    const std::vector<std::string> above(part.begin(), part.end() - 1);
    std::vector<std::string> names;
    for (const CommandDescription& child : find_command(root, above)->subcommands) names.push_back(child.name);
    if (names.empty())
      fail_user("'" + joined(above, " ") + "' has no commands below it, such as '" + part.back() + "'");
    fail_user("there is no command '" + joined(part, " ") + "'" + did_you_mean(part.back(), names, "", ""));
  }
}

int print_man_page(const CommandDescription& root, const std::vector<std::string>& path, const std::string& folder) {
  check_command(root, path);
  if (folder.empty()) {
    std::fputs(man_page(root, path).c_str(), stdout);
    return 0;
  }
  if (!path.empty()) fail_user("--out writes the pages of all commands; leave '" + joined(path, " ") + "' out");
  make_directories(folder);
  for_each_command(root, [&](const std::vector<std::string>& each, const CommandDescription&) {
    write_file_atomically(folder + "/" + man_page_name(each) + ".1", man_page(root, each));
  });
  return 0;
}

}  // namespace

void add_reference_commands(Command& linnet, const CommandDescription& described) {
  struct Arguments {
    std::vector<std::string> path;
    std::string shell, folder;
  };
  auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> names{"help", "man", "completion"};
  for (const CommandDescription& command : described.subcommands) names.push_back(command.name);

  linnet.subcommand("help", "tell what a command takes, or list the commands")
      .take("command", arguments->path, "the command, e.g. `train` or `tokenizer encode`", {.suggestions = names})
      .does([arguments, &described] {
        check_command(described, arguments->path);
        std::fputs(help_page(described, arguments->path).c_str(), stdout);
        return 0;
      });
  linnet.subcommand("man", "print the manual page of linnet or of a command, for `man -l -`")
      .take("command", arguments->path, "the command (default: linnet itself)", {.suggestions = names})
      .take("--out", arguments->folder, "write the pages of all commands into this folder", {.type = "DIR"})
      .does([arguments, &described] { return print_man_page(described, arguments->path, arguments->folder); });
  linnet.subcommand("completion", "print what makes a shell complete commands, options and values")
      .take("shell", arguments->shell, "bash, zsh or fish; for example: source <(linnet completion bash)",
            {.required = true, .choices = {"bash", "zsh", "fish"}})
      .does([arguments, &described] {
        std::fputs(completion_script(described, arguments->shell).c_str(), stdout);
        return 0;
      });
}

}  // namespace linnet
