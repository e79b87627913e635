#include "training/report/page_parts.h"

#include <algorithm>
#include <map>
#include <string_view>

namespace linnet {
namespace {

// Text that may stand within HTML's text and attributes.
std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text)
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else
      result += c;
  return result;
}

// JSON that may stand within a script element: nothing in it can end the element.
std::string script_text(const std::string& json) {
  std::string result;
  for (const char c : json)
    if (c == '<')
      result += "\\u003c";
    else
      result += c;
  return result;
}

std::string filled(const std::map<std::string, std::string>& values) {
  const std::string_view page = kPageHtml;
  std::string result;
  for (size_t at = 0; at < page.size();) {
    const size_t open = std::min(page.find("{{", at), page.size());
    result += page.substr(at, open - at);
    if (open == page.size()) break;
    const size_t close = page.find("}}", open);
    result += values.at(std::string(page.substr(open + 2, close - open - 2)));
    at = close + 2;
  }
  return result;
}

}  // namespace

std::string filled_page(const std::string& title, const std::string& command, const char* script,
                        const std::string& json) {
  return filled({{"title", escaped(title)},
                 {"command", escaped(command)},
                 {"style", kPageStyle},
                 {"script", script},
                 {"data", script_text(json)}});
}

}  // namespace linnet
