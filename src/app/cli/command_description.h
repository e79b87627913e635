// What commands were declared to take, and what tells about it: help, manual pages, shell completion.
#pragma once
#include <list>
#include <string>
#include <vector>

namespace linnet {

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

// The command that the words name, from `root` on; null when there is none.
const CommandDescription* find_command(const CommandDescription& root, const std::vector<std::string>& path);

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

// What `linnet help COMMAND` and `linnet COMMAND --help` print.

// `path`: the names that lead from `root` to the command. It must be one of root's.
std::string help_page(const CommandDescription& root, const std::vector<std::string>& path);

// "linnet tokenizer train [OPTIONS] MODEL FILES..."
std::string usage_line(const CommandDescription& root, const std::vector<std::string>& path);

// The name of an argument by its position as help writes it: "model" is MODEL.
std::string placeholder(const ArgumentDescription& argument);

// Manual pages in the format of man(7).

// "linnet-tokenizer-train" for {"tokenizer", "train"}.
std::string man_page_name(const std::vector<std::string>& path);
std::string man_page(const CommandDescription& root, const std::vector<std::string>& path);

// Shell completion, generated from what the commands declared.

// `shell`: bash, zsh or fish.
std::string completion_script(const CommandDescription& root, const std::string& shell);

}  // namespace linnet
