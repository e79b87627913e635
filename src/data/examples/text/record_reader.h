// Records of a file with named fields, one at a time.
#pragma once
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/json.h"
#include "data/examples/text/line_reader.h"

namespace linnet {

// By the file's name, each also with ".gz" behind it: .csv has comma-separated values (RFC 4180: fields in quotes may
// hold commas, doubled quotes and line ends), or where the heading has no comma, values between semicolons or tabs,
// as spreadsheets write them where the comma is a decimal sign; .jsonl, .ndjson and .json have a JSON object on each
// line; any other file has fields separated by tabs. Blank lines are skipped.
//
// The first line of a .csv file is a heading; that of a tab-separated file if one of its fields is in `heading`.
// Without a heading fields are called "1", "2", ... Errors: user errors of one line that name file and line: those of
// LineReader, a quote that is not closed, a record with another number of fields than the first, a line that is no JSON
// object.
class RecordReader {
 public:
  RecordReader(const std::string& path, std::span<const std::string_view> heading);

  // Replaces `record` by the next one, an object; false at the end. Fields of tables are strings.
  bool next(Json& record);
  // "path:line" of the first line of the record that next() returned last, for messages.
  const std::string& where() const { return where_; }

 private:
  bool read_json(Json& record);
  bool read_fields(std::vector<std::string>& fields);
  void split_quoted(std::string line, std::vector<std::string>& fields);

  LineReader lines_;
  const std::vector<std::string_view> heading_;
  enum class Form { kTabs, kQuoted, kJson } form_;
  char separator_ = ',';            // of kQuoted
  std::vector<std::string> names_;  // of the fields, once the first line was read
  bool has_heading_ = false;
  std::string where_;
};

// Whether a file's name says that it has records: a table or JSON lines.
bool has_records(const std::string& path);

}  // namespace linnet
