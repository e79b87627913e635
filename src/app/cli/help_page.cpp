// The commands help, man and completion, and their pages.
#include <algorithm>
#include <cctype>
#include <set>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/files.h"
#include "base/text.h"
#include "config/hints.h"

namespace linnet {
// Files of src/app/cli/completion.
extern const char* const kBashCompletion;
extern const char* const kZshCompletion;
extern const char* const kFishCompletion;

namespace {
using Path = std::vector<std::string>;

// A positional argument's name in help: "model" is MODEL.
std::string placeholder(const ArgumentDescription& argument) { return upper_ascii(argument.name); }

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

std::vector<std::string> option_names(const CommandDescription& command) {
  std::vector<std::string> names{"--help"};
  for (const ArgumentDescription& argument : command.arguments)
    if (argument.is_option()) names.push_back(argument.name);
  return names;
}

// In single quotes of a POSIX shell (and of fish, where nothing here needs more).
std::string shell_quoted(std::string text) {
  replace_all(text, "'", "'\\''");
  return "'" + text + "'";
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

// A script with its places filled.
std::string filled(std::string script, const std::vector<std::pair<const char*, std::string>>& places) {
  for (const auto& [place, text] : places) replace_all(script, place, text);
  return script;
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
  std::vector<std::string> words = mapped(command.subcommands, &CommandDescription::name);
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
  return filled(kBashCompletion,
      {{"@COMMANDS@", known_commands(root, " | ")}, {"@VALUES@", values}, {"@OPTIONS@", options}, {"@WORDS@", words}});
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
  // No blank after "key=": the value follows.
  return by_kind(argument,
      goes_on(argument) ? "{compadd -S '' -- " + joined(argument.values, " ") + "}"
                        : "(" + joined(argument.values, " ", zsh_text) + ")",
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
  return filled(kZshCompletion, {{"@COMMANDS@", known_commands(root, "|")}, {"@CASES@", cases}});
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
  return filled(kFishCompletion, {{"@COMMANDS@", known_commands(root, " ")}, {"@LINES@", lines}});
}

constexpr size_t kWidth = 100, kMostIndent = 34;

// Breaks `text` into lines of kWidth; all but the first are indented.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size()), size = end - begin;
    if (column > indent && column + 1 + size > kWidth) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ', ++column;
    }
    out.append(text, begin, size);
    column += size;
    begin = end + 1;
  }
  return out;
}

using Rows = std::vector<std::pair<std::string, std::string>>;

// Names with aligned meanings, one a line.
std::string table(const Rows& rows) {
  const size_t widest = max_of<size_t>(rows, [](const auto& row) { return row.first.size(); });
  const size_t indent = std::min(widest + 4, kMostIndent);
  std::string out;
  for (const auto& [name, meaning] : rows) {
    out += "  " + name;
    if (name.size() + 4 <= indent) out.append(indent - name.size() - 2, ' ');
    else out += "\n" + std::string(indent, ' ');
    out += wrapped(meaning, indent) + "\n";
  }
  return out;
}

std::string meaning(const ArgumentDescription& argument) {
  std::string text = argument.help;
  if (argument.is_option() && argument.is_required) text += " (required)";
  return text;
}

// Escapes text for roff: '\' begins an escape, '-' would become a hyphen, and '.' or '\'' at a line's start a request.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == 0 && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else out += c;
  }
  return out;
}

void append_item(std::string& out, const std::string& name, const std::string& meaning) {
  out += ".TP\n\\fB" + roff(name) + "\\fR\n" + roff(meaning) + "\n";
}

void append_arguments(std::string& out, const CommandDescription& command, bool options, const char* title) {
  bool any = false;
  for (const ArgumentDescription& argument : command.arguments) {
    if (argument.is_option() != options) continue;
    if (!any) out += std::string(".SH ") + title + "\n";
    any = true;
    const std::string value = argument.is_flag ? "" : " " + argument.type;
    append_item(out, options ? argument.name + value : placeholder(argument), argument.help);
  }
}

// The command at `path` below `root`; null if there is none.
const CommandDescription* find_command(const CommandDescription& root, const std::vector<std::string>& path) {
  const CommandDescription* at = &root;
  for (const std::string& name : path)
    if (at) at = find_item(at->subcommands, name, &CommandDescription::name);
  return at;
}

// "linnet tokenizer train [OPTIONS] MODEL FILES..."
std::string usage_line(const CommandDescription& root, const std::vector<std::string>& path) {
  const CommandDescription* command = find_command(root, path);
  if (!command) fail_internal("there is no command '", joined(path, " "), "'");
  std::string line = "linnet" + std::string(path.empty() ? "" : " ") + joined(path, " ");
  if (!command->subcommands.empty()) return line + " COMMAND ...";
  for (const ArgumentDescription& argument : command->arguments)
    if (argument.is_option() && argument.is_required) line += " " + argument.name + " " + argument.type;
  if (std::ranges::any_of(command->arguments, [](const auto& a) { return a.is_option() && !a.is_required; }))
    line += " [OPTIONS]";
  for (const ArgumentDescription& argument : command->arguments) {
    if (argument.is_option()) continue;
    const std::string name = placeholder(argument) + (argument.is_list ? "..." : "");
    line += argument.is_required ? " " + name : " [" + name + "]";
  }
  return line;
}

std::string man_page_name(const std::vector<std::string>& path) {
  return path.empty() ? "linnet" : "linnet-" + joined(path, "-");
}

std::string man_page(const CommandDescription& root, const std::vector<std::string>& path) {
  const CommandDescription& command = *find_command(root, path);
  const std::string name = man_page_name(path);
  std::string out = ".TH " + upper_ascii(name) + " 1 \"\" \"linnet " LINNET_VERSION "\" \"Linnet\"\n";
  out += ".SH NAME\n" + roff(name) + " \\- " + roff(command.help) + "\n";
  out += ".SH SYNOPSIS\n.B " + roff(usage_line(root, path)) + "\n";
  append_arguments(out, command, false, "ARGUMENTS");
  append_arguments(out, command, true, "OPTIONS");
  if (!command.subcommands.empty()) out += ".SH COMMANDS\n";
  for (const CommandDescription& child : command.subcommands)
    append_item(out, name + "-" + child.name + "(1)", child.help);
  out += ".SH EXIT STATUS\n";
  for (const auto& [code, meaning] : {std::pair{"0", "Done, or stopped by a signal after saving."},
           {"2", "Something the user or the machine can change: arguments, configuration, files, memory, disk."},
           {"3", "The loss or the gradient is not finite."}, {"70", "A broken invariant of Linnet itself."}})
    append_item(out, code, meaning);
  out += ".SH SEE ALSO\n";
  if (!path.empty()) out += ".BR linnet (1)\n.P\n";
  out +=
      "The guide, which messages call docs/: /usr/share/doc/linnet/docs, the folder docs of the tarball or of the "
      "sources.\n";
  return out;
}

// User error naming the nearest command if there is none at `path`.
void check_command(const CommandDescription& root, const std::vector<std::string>& path) {
  for (size_t size = 1; size <= path.size(); ++size) {
    const std::vector<std::string> part(path.begin(), path.begin() + size);
    if (find_command(root, part)) continue;
    const std::vector<std::string> above(part.begin(), part.end() - 1);
    const std::vector<std::string> names = mapped(find_command(root, above)->subcommands, &CommandDescription::name);
    if (names.empty()) fail_user("'", joined(above, " "), "' has no commands below it, such as '", part.back(), "'");
    fail_user("there is no command '", joined(part, " "), "'", did_you_mean(part.back(), names, "", ""));
  }
}

int print_man_page(const CommandDescription& root, const std::vector<std::string>& path, const std::string& folder) {
  check_command(root, path);
  if (folder.empty()) {
    print_text(man_page(root, path));
    return 0;
  }
  if (!path.empty()) fail_user("--out writes the pages of all commands; leave '", joined(path, " "), "' out");
  make_directories(folder);
  for_each_command(root, [&](const std::vector<std::string>& each, const CommandDescription&) {
    write_file_atomically(folder + "/" + man_page_name(each) + ".1", man_page(root, each));
  });
  return 0;
}
}  // namespace

std::string help_page(const CommandDescription& root, const std::vector<std::string>& path) {
  const CommandDescription& command = *find_command(root, path);
  std::string out = "usage: " + usage_line(root, path) + "\n\n";
  std::string help = (path.empty() ? "linnet " : "") + command.help + ".";
  help[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(help[0])));
  out += wrapped(help, 0) + "\n";
  Rows positionals, options;
  for (const ArgumentDescription& argument : command.arguments) {
    if (argument.is_option())
      options.emplace_back(argument.name + (argument.is_flag ? "" : " " + argument.type), meaning(argument));
    else positionals.emplace_back(placeholder(argument), meaning(argument));
  }
  if (!positionals.empty()) out += "\n" + table(positionals);
  if (!options.empty()) out += "\noptions:\n" + table(options);
  if (command.subcommands.empty()) return out;
  Rows rows;
  for (const CommandDescription& child : command.subcommands) rows.emplace_back(child.name, child.help);
  out += "\ncommands:\n" + table(rows);
  out += "\n`linnet help " + (path.empty() ? "" : joined(path, " ") + " ") + "COMMAND` tells what a command takes.\n";
  return out;
}

void add_reference_commands(Command& linnet, const CommandDescription& described) {
  struct Arguments {
    std::vector<std::string> path;
    std::string shell, folder;
  };
  const auto arguments = std::make_shared<Arguments>();
  std::vector<std::string> names{"help", "man", "completion"};
  for (const CommandDescription& command : described.subcommands) names.push_back(command.name);
  linnet.subcommand("help", "tell what a command takes, or list the commands")
      .take("command", arguments->path, "the command, e.g. `train` or `tokenizer encode`", {.suggestions = names})
      .does([arguments, &described] {
        check_command(described, arguments->path);
        print_text(help_page(described, arguments->path));
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
        const std::string& shell = arguments->shell;
        print_text((shell == "zsh" ? zsh_script : shell == "fish" ? fish_script : bash_script)(described));
        return 0;
      });
}
}  // namespace linnet
