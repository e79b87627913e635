// The commands help, man and completion, and their pages.
#include <algorithm>
#include <cctype>
#include "app/cli/command_line.h"
#include "app/cli/print-inl.h"
#include "base/files.h"
#include "base/text.h"
#include "config/hints.h"

namespace linnet {
namespace {
constexpr size_t kWidth = 100, kMostIndent = 34;

// Breaks `text` into lines of kWidth; all but the first are indented.
std::string wrapped(const std::string& text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const size_t size = end - begin;
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
  size_t widest = 0;
  for (const auto& [name, meaning] : rows) widest = std::max(widest, name.size());
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
  for (const std::string& name : path) {
    const auto found = std::ranges::find(at->subcommands, name, &CommandDescription::name);
    if (found == at->subcommands.end()) return nullptr;
    at = &*found;
  }
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
  for (const CommandDescription& child : command.subcommands) {
    std::vector<std::string> below = path;
    below.push_back(child.name);
    append_item(out, man_page_name(below) + "(1)", child.help);
  }
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
    std::vector<std::string> names;
    for (const CommandDescription& child : find_command(root, above)->subcommands) names.push_back(child.name);
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

std::string placeholder(const ArgumentDescription& argument) { return upper_ascii(argument.name); }

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
        print_text(completion_script(described, arguments->shell));
        return 0;
      });
}
}  // namespace linnet
