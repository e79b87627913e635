#include "data/examples/text/record_reader.h"
#include <algorithm>
#include "base/error.h"
#include "base/text.h"

namespace linnet {

namespace {
bool has_json(const std::string& path) {
  return has_ending(path, ".jsonl") || has_ending(path, ".ndjson") || has_ending(path, ".json");
}
}  // namespace

bool has_records(const std::string& path) {
  return has_json(path) || has_ending(path, ".csv") || has_ending(path, ".tsv");
}

RecordReader::RecordReader(const std::string& path, std::span<const std::string_view> heading)
    : lines_(path),
      heading_(heading.begin(), heading.end()),
      form_(has_ending(path, ".csv") ? Form::kQuoted
            : has_json(path)         ? Form::kJson
                                     : Form::kTabs) {}

bool RecordReader::next(Json& record) {
  if (form_ == Form::kJson) return read_json(record);
  std::vector<std::string> fields;
  if (!read_fields(fields)) return false;
  if (names_.empty()) {
    has_heading_ = form_ == Form::kQuoted || std::ranges::any_of(fields, [&](const std::string& field) {
                     return std::ranges::count(heading_, trimmed(field)) > 0;
                   });
    for (size_t i = 0; i < fields.size(); ++i)
      names_.push_back(has_heading_ ? std::string(trimmed(fields[i])) : std::to_string(i + 1));
    if (has_heading_ && !read_fields(fields)) return false;
  }
  if (fields.size() != names_.size())
    fail_user(where_ + ": " + std::to_string(fields.size()) + (fields.size() == 1 ? " field" : " fields") + ", where " +
              (has_heading_ ? "the heading" : "the first line") + " has " + std::to_string(names_.size()));
  record = Json::object();
  for (size_t i = 0; i < fields.size(); ++i) record[names_[i]] = std::move(fields[i]);
  return true;
}

bool RecordReader::read_json(Json& record) {
  for (std::string line; lines_.next(line);) {
    if (trimmed(line).empty()) continue;
    where_ = lines_.where();
    record = Json::parse(line, where_ + ": the line", JsonLimits::settings());
    if (!record.is_object()) fail_user(where_ + ": the line is no JSON object");
    return true;
  }
  return false;
}

bool RecordReader::read_fields(std::vector<std::string>& fields) {
  fields.clear();
  std::string line;
  do {
    if (!lines_.next(line)) return false;
  } while (trimmed(line).empty());
  where_ = lines_.where();
  if (form_ == Form::kQuoted) {
    if (const bool is_heading = names_.empty(); is_heading && line.find(',') == line.npos)
      for (const char other : {';', '\t'})
        if (line.find(other) != line.npos) separator_ = other;
    split_quoted(std::move(line), fields);
    return true;
  }
  for (size_t start = 0; start <= line.size();) {
    const size_t end = std::min(line.find('\t', start), line.size());
    fields.push_back(line.substr(start, end - start));
    start = end + 1;
  }
  return true;
}

void RecordReader::split_quoted(std::string line, std::vector<std::string>& fields) {
  size_t i = 0;
  for (;;) {
    std::string& field = fields.emplace_back();
    if (i < line.size() && line[i] == '"') {
      for (++i;; ++i) {
        while (i >= line.size()) {
          std::string more;
          if (!lines_.next(more)) fail_user(where_ + ": a quote is not closed before the end of the file");
          line += '\n' + more;
        }
        if (line[i] == '"' && (++i >= line.size() || line[i] != '"')) break;
        field += line[i];
      }
      if (i < line.size() && line[i] != separator_)
        fail_user(where_ + ": text behind a closing quote; a quote inside a field is written as two");
    } else {
      const size_t end = std::min(line.find(separator_, i), line.size());
      field = line.substr(i, end - i);
      i = end;
    }
    if (i >= line.size()) return;
    ++i;
  }
}

}  // namespace linnet
