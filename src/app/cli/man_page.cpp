#include "app/cli/man_page.h"

#include <cctype>

#include "app/cli/build_version.h"
#include "app/cli/help_page.h"

namespace linnet {
namespace {

// Text as roff takes it literally: '\' begins an escape, '-' would become a hyphen, '.' and '\'' begin a request at the
// start of a line.
std::string roff(const std::string& text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i == 0 && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
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

}  // namespace

std::string man_page_name(const std::vector<std::string>& path) {
  return path.empty() ? "linnet" : "linnet-" + join(path, "-");
}

std::string man_page(const CommandDescription& root, const std::vector<std::string>& path) {
  const CommandDescription& command = *find_command(root, path);
  const std::string name = man_page_name(path);
  std::string title = name;
  for (char& c : title) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  std::string out = ".TH " + title + " 1 \"\" \"linnet " LINNET_VERSION "\" \"Linnet\"\n";
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
  for (const auto& [code, meaning] :
       {std::pair{"0", "Done, or stopped by a signal after saving."},
        {"2", "Something the user or the machine can change: arguments, configuration, files, memory, disk."},
        {"3", "The loss or the gradient is not finite."},
        {"70", "A broken invariant of Linnet itself."}})
    append_item(out, code, meaning);
  if (!path.empty()) out += ".SH SEE ALSO\n.BR linnet (1)\n";
  return out;
}

}  // namespace linnet
