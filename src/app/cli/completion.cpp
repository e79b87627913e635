#include <set>
#include "app/cli/command_line.h"
#include "base/text.h"

namespace linnet {
namespace {
using Path = std::vector<std::string>;

// The completion of a value: known `words`, a folder, a file, or anything.
std::string by_kind(const ArgumentDescription& argument, const std::string& words, const char* folder, const char* file,
    const char* anything) {
  if (!argument.values.empty()) return words;
  if (argument.type == "DIR" || argument.type == "RUN" || argument.type == "MODEL") return folder;
  return argument.type == "FILE" || !argument.is_option() ? file : anything;
}

// "d_model=" is completed further, so no blank may follow it.
bool goes_on(const ArgumentDescription& argument) {
  return !argument.values.empty() && argument.values.front().ends_with('=');
}

std::vector<std::string> child_names(const CommandDescription& command) {
  std::vector<std::string> names;
  for (const CommandDescription& child : command.subcommands) names.push_back(child.name);
  return names;
}

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names{"--help"};
  for (const ArgumentDescription& argument : command.arguments)
    if (argument.is_option()) names.push_back(argument.name);
  return names;
}

// In single quotes of a POSIX shell (and of fish, where nothing here needs more).
std::string shell_quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// "' train' | ' eval' | 'tokenizer encode'": known command, blank and next word, joined by `between`.
std::string known_commands(const CommandDescription& root, const std::string& between) {
  std::vector<std::string> all;
  for_each_command(root, [&](const Path& path, const CommandDescription&) {
    if (path.empty()) return;
    all.push_back(shell_quoted(joined(Path(path.begin(), path.end() - 1), " ") + " " + path.back()));
  });
  return joined(all, between);
}

// --- bash

// Completions of an argument's value, as the body of a case.
std::string bash_values(const ArgumentDescription& argument) {
  const std::string words =
      "mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(joined(argument.values, " ")) + " -- \"$cur\")";
  return by_kind(argument, (goes_on(argument) ? "compopt -o nospace; " : "") + words,
      "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -d -- \"$cur\")",
      "compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")", ":");
}

// Completes words, and for a positional argument also files: a preset's name or a configuration file.
std::string bash_words(const CommandDescription& command) {
  std::vector<std::string> words = child_names(command);
  std::set<std::string> flags;  // of compgen; -f comes with folders
  for (const ArgumentDescription& argument : command.arguments) {
    if (argument.is_option()) continue;
    words.insert(words.end(), argument.values.begin(), argument.values.end());
    flags.insert(by_kind(argument, argument.type == "FILE" ? "-f " : "", "-d ", "-f ", ""));
  }
  const std::string flag = flags.contains("-f ") ? "-f " : flags.contains("-d ") ? "-d " : "";
  return (flag.empty() ? "" : "compopt -o filenames; ") + ("mapfile -t COMPREPLY < <(compgen " + flag) + "-W " +
         shell_quoted(joined(words, " ")) + " -- \"$cur\")";
}

std::string bash_script(const CommandDescription& root) {
  std::string values, options, words;
  for_each_command(root, [&](const Path& path, const CommandDescription& command) {
    const std::string name = joined(path, " ");
    for (const ArgumentDescription& argument : command.arguments)
      if (argument.is_option() && !argument.is_flag)
        values += "    " + shell_quoted(name + " " + argument.name) + ") " + bash_values(argument) + "; return ;;\n";
    options +=
        "      " + shell_quoted(name) + ") options=" + shell_quoted(joined(option_names(command), " ")) + " ;;\n";
    words += "    " + shell_quoted(name) + ") " + bash_words(command) + " ;;\n";
  });
  return "# Completion of linnet for bash, printed by `linnet completion bash`.\n"
         "_linnet() {\n"
         "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= options= i\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case \"$command ${COMP_WORDS[i]}\" in\n"
         "      " +
         known_commands(root, " | ") +
         ") command=${command:+$command }${COMP_WORDS[i]} ;;\n"
         "      *) break ;;\n"
         "    esac\n"
         "  done\n"
         "  COMPREPLY=()\n"
         "  case \"$command $prev\" in\n" +
         values +
         "  esac\n"
         "  if [[ $cur == -* ]]; then\n"
         "    case $command in\n" +
         options +
         "    esac\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$cur\")\n"
         "    return\n"
         "  fi\n"
         "  case $command in\n" +
         words +
         "  esac\n"
         "}\n"
         "complete -F _linnet linnet\n";
}

// --- zsh

// Escapes text inside the brackets of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_values(const ArgumentDescription& argument) {
  std::vector<std::string> words;
  for (const std::string& word : argument.values) words.push_back(zsh_text(word));
  // No blank after "key=": the value follows.
  return by_kind(argument,
      goes_on(argument) ? "{compadd -S '' -- " + joined(argument.values, " ") + "}" : "(" + joined(words, " ") + ")",
      "_files -/", "_files", " ");
}

std::string zsh_specification(const ArgumentDescription& argument) {
  std::string text = argument.is_option()
                         ? (argument.is_list ? "*" : "") + argument.name + "[" + zsh_text(argument.help) + "]"
                         : (argument.is_list ? "*" : "");
  if (argument.is_flag) return shell_quoted(text);
  // A preset's name or a file: two tags, of which zsh offers what matches.
  const bool either = !argument.is_option() && !argument.values.empty() && argument.type == "FILE";
  std::string values = either ? "{_alternative " + shell_quoted("names:name:" + zsh_values(argument)) + " " +
                                    shell_quoted("files:file:_files") + "}"
                              : zsh_values(argument);
  return shell_quoted(
      text + ":" + zsh_text(argument.is_option() ? argument.type : placeholder(argument)) + ":" + values);
}

std::string zsh_script(const CommandDescription& root) {
  std::string cases;
  for_each_command(root, [&](const Path& path, const CommandDescription& command) {
    cases += "    " + shell_quoted(joined(path, " ")) + ")\n";
    if (!command.subcommands.empty()) {
      cases += "      local -a names=(\n";
      for (const CommandDescription& child : command.subcommands)
        cases += "        " + shell_quoted(child.name + ":" + zsh_text(child.help)) + "\n";
      cases += "      )\n      _describe command names ;;\n";
      return;
    }
    cases += "      _arguments '--help[tell what the command takes]'";
    for (const ArgumentDescription& argument : command.arguments)
      cases += " \\\n        " + zsh_specification(argument);
    cases += " ;;\n";
  });
  return "#compdef linnet\n"
         "# Completion of linnet for zsh, printed by `linnet completion zsh`.\n"
         "_linnet() {\n"
         "  local command= i\n"
         "  for ((i = 2; i < CURRENT; ++i)); do\n"
         "    case \"$command ${words[i]}\" in\n"
         "      " +
         known_commands(root, "|") +
         ") command=${command:+$command }${words[i]} ;;\n"
         "      *) break ;;\n"
         "    esac\n"
         "  done\n"
         "  # _arguments expects the command alone before what it takes.\n"
         "  words=(linnet \"${(@)words[i,-1]}\")\n"
         "  ((CURRENT -= i - 2))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "if [[ $funcstack[1] == _linnet ]]; then _linnet \"$@\"; else compdef _linnet linnet; fi\n";
}

// --- fish

std::string fish_line(const std::string& command, const std::string& rest, const std::string& help) {
  return "complete -c linnet -n " + shell_quoted("__linnet_is " + command) + " " + rest +
         (help.empty() ? "" : " -d " + shell_quoted(help)) + "\n";
}

std::string fish_values(const ArgumentDescription& argument) {
  return by_kind(argument, " -f -a " + shell_quoted(joined(argument.values, " ")),
      " -f -a '(__fish_complete_directories)'", " -F", " -f");
}

std::string fish_script(const CommandDescription& root) {
  std::string lines;
  for_each_command(root, [&](const Path& path, const CommandDescription& command) {
    const std::string name = joined(path, " ");
    for (const CommandDescription& child : command.subcommands)
      lines += fish_line(name, "-f -a " + shell_quoted(child.name), child.help);
    for (const ArgumentDescription& argument : command.arguments) {
      if (argument.is_option())
        lines += fish_line(name,
            "-l " + argument.name.substr(2) + (argument.is_flag ? " -f" : " -r" + fish_values(argument)),
            argument.help);
      else if (!argument.values.empty())
        lines +=
            fish_line(name, (argument.type == "FILE" ? "-a " : "-f -a ") + shell_quoted(joined(argument.values, " ")),
                placeholder(argument));
    }
  });
  return "# Completion of linnet for fish, printed by `linnet completion fish`.\n"
         "function __linnet_is --description 'whether the words so far name this command'\n"
         "  set -l command\n"
         "  for word in (commandline -opc)[2..-1]\n"
         "    switch \"$command $word\"\n"
         "      case " +
         known_commands(root, " ") +
         "\n"
         "        set command (string trim \"$command $word\")\n"
         "      case '*'\n"
         "        break\n"
         "    end\n"
         "  end\n"
         "  test \"$command\" = \"$argv\"\n"
         "end\n" +
         lines;
}
}  // namespace

std::string completion_script(const CommandDescription& root, const std::string& shell) {
  if (shell == "zsh") return zsh_script(root);
  if (shell == "fish") return fish_script(root);
  return bash_script(root);
}
}  // namespace linnet
