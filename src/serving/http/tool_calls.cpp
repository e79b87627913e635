#include <algorithm>
#include "base/json.h"
#include "base/text.h"
#include "serving/http/api_answer.h"

namespace linnet {
namespace {
constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kSpace = " \t\r\n";

std::string_view without_blanks(std::string_view text) { return trimmed(text, kSpace); }

bool add_call(std::string_view text, std::span<const std::string> functions, std::vector<ToolCall>& calls) {
  const Json json = Json::parse_or_null(without_blanks(text), JsonLimits::request());
  const Json* name = json.find("name");
  if (!name || !name->is_string() || std::ranges::find(functions, name->text()) == functions.end()) return false;
  const Json* arguments = json.find("arguments");
  if (!arguments) arguments = json.find("parameters");
  if (arguments && !arguments->is_object()) return false;
  calls.push_back({name->text(), arguments ? arguments->dump() : "{}"});
  return true;
}

// Reads text that consists of calls separated by ";". Values may contain ";", so the longest valid piece counts.
bool add_bare_calls(std::string_view text, std::span<const std::string> functions, std::vector<ToolCall>& calls) {
  while (!text.empty()) {
    size_t end = text.size();
    while (!add_call(text.substr(0, end), functions, calls)) {
      end = end == 0 ? text.npos : text.rfind(';', end - 1);
      if (end == text.npos) return false;
    }
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return true;
}
}  // namespace

TextWithCalls find_tool_calls(const std::string& text, std::span<const std::string> functions) {
  TextWithCalls found;
  if (without_blanks(text).starts_with('{') && add_bare_calls(without_blanks(text), functions, found.calls))
    return found;
  found.calls.clear();
  const size_t first = text.find(kOpen);
  for (size_t at = first; at != text.npos; at = text.find(kOpen, at)) {
    at += kOpen.size();
    if (!add_call(std::string_view(text).substr(at, text.find(kClose, at) - at), functions, found.calls))
      return {.content = text, .calls = {}};
  }
  found.content = text.substr(0, found.calls.empty() ? text.npos : certain_content(text));
  return found;
}

size_t certain_content(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == text.npos || text[begin] == '{') return 0;
  size_t size = text.find(kOpen);
  if (size == text.npos) {
    size = text.size();
    for (size_t part = std::min(kOpen.size() - 1, text.size()); part > 0 && size == text.size(); --part)
      if (text.ends_with(kOpen.substr(0, part))) size -= part;
  }
  return text.substr(0, size).find_last_not_of(kSpace) + 1;
}
}  // namespace linnet
