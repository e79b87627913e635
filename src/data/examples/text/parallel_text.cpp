#include "data/examples/text/parallel_text.h"
#include <algorithm>
#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "data/examples/text/line_reader.h"
#include "data/examples/text/record_reader.h"

namespace linnet {
namespace {

[[noreturn]] void fail_empty(const std::string& path) { fail_user("'" + path + "' is empty"); }

std::string lines(size_t count) { return std::to_string(count) + (count == 1 ? " line" : " lines"); }

}  // namespace

std::vector<std::string> read_lines(const std::string& path) {
  LineReader reader(path);
  std::vector<std::string> result;
  std::string line;
  Phase phase("reading '" + path + "', lines:");
  while (reader.next(line)) {
    result.push_back(line);  // a copy is no larger than it must be; the buffer line is reused
    phase.tick(static_cast<int64_t>(result.size()));
  }
  if (result.empty()) fail_empty(path);
  return result;
}

std::pair<std::string, std::string> split_pair(const std::string& line, const std::string& where) {
  const auto tabs = std::count(line.begin(), line.end(), '\t');
  if (tabs < 1 || tabs > 2)
    fail_user(where + ": expected source<TAB>target, found " +
              (tabs == 0 ? (line.empty() ? "an empty line" : "no tab") : std::to_string(tabs) + " tabs"));
  const size_t tab = line.find('\t'), next = std::min(line.find('\t', tab + 1), line.size());
  return {line.substr(0, tab), line.substr(tab + 1, next - tab - 1)};
}

namespace {

// The texts of a record, which may lie below "translation": those of the columns that are named, else of the usual
// names, else both that there are.
std::pair<std::string, std::string> pair_of(const Json& given, const PairColumns& columns, const std::string& where) {
  const Json* below = given.find("translation");
  const Json& record = below && below->is_object() ? *below : given;
  const auto find = [&](const std::string& asked, std::initializer_list<const char*> usual, size_t place) {
    const Json* found = nullptr;
    if (!asked.empty()) found = record.find(asked);
    for (const char* name : usual)
      if (!found && asked.empty()) found = record.find(name);
    if (!found && asked.empty() && record.size() == 2) found = &record.items()[place].value;
    if (found && found->is_string()) return found->text();
    const std::string names = joined(record.items(), ", ", &Json::Member::key);
    fail_user(where + ": no text is called \"" + (asked.empty() ? *usual.begin() : asked) + "\" (there are " + names +
              "); --text-column and --label-column name source and target");
  };
  return {find(columns.source, {"source", "src"}, 0), find(columns.target, {"target", "tgt"}, 1)};
}

}  // namespace

ParallelText read_table(const std::string& path, const PairColumns& columns) {
  ParallelText text;
  if (has_records(path) && (!has_ending(path, ".tsv") || !columns.source.empty() || !columns.target.empty())) {
    std::vector<std::string_view> heading;
    for (const std::string* name : {&columns.source, &columns.target})
      if (!name->empty()) heading.push_back(*name);
    RecordReader reader(path, heading);
    for (Json record; reader.next(record);) {
      auto [source, target] = pair_of(record, columns, reader.where());
      text.source.push_back(std::move(source));
      text.target.push_back(std::move(target));
    }
    if (text.source.empty()) fail_empty(path);
    return text;
  }
  LineReader reader(path);
  for (std::string line; reader.next(line);) {
    auto [source, target] = split_pair(line, reader.where());
    text.source.push_back(std::move(source));
    text.target.push_back(std::move(target));
  }
  if (text.source.empty()) fail_empty(path);
  return text;
}

ParallelText read_pair(const std::string& source_path, const std::string& target_path) {
  ParallelText text{read_lines(source_path), read_lines(target_path)};
  if (text.source.size() != text.target.size())
    fail_user("unequal line counts: '" + source_path + "' has " + lines(text.source.size()) + ", '" + target_path +
              "' has " + lines(text.target.size()));
  return text;
}

}  // namespace linnet
