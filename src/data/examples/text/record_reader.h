// Files as bytes, plain or gzip; their lines, one at a time and checked; and records with named fields.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>
#include "base/json.h"

struct gzFile_s;

namespace linnet {

// Gzip is recognized by its first bytes, not by the file's name; pipes are read as well. A file that is missing or
// unreadable, a directory, a truncated or corrupt gzip stream and one that expands too far are user errors of one line.
class GzipFile {
 public:
  // `needed` ends the message for a directory: ", a text file is needed".
  explicit GzipFile(const std::string& path, const std::string& needed = "");
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  // As many bytes as there are, at most `size`: fewer at the end of the file alone.
  size_t read(void* to, size_t size);
  // More than this the file cannot hold: deflate shrinks at most 1032 times (RFC 1951).
  uint64_t most_bytes() const { return file_bytes_ * 1032; }
  // User error when so many bytes are more than a file of this size should expand to.
  void check_size(uint64_t bytes) const;

 private:
  void check_end(int got) const;

  std::string path_;
  gzFile_s* file_ = nullptr;
  uint64_t file_bytes_ = 0, expanded_ = 0;
};

// Reads UTF-8 lines through a fixed buffer. "\r\n" ends a line as "\n" does; a byte order mark before the first line is
// skipped; the last line needs no newline.
//
// Every problem is a user error of one line that names the file, and where it has one the line and the byte within that
// line (both count from 1): those of GzipFile, bytes that are not UTF-8, a NUL byte. An empty file is not an error
// here; read_lines() makes it one.
class LineReader {
 public:
  explicit LineReader(const std::string& path);

  // Replaces `line` by the next line without its end; false at the end of the file.
  bool next(std::string& line);
  // The number of the line next() returned last, from 1.
  int64_t line_number() const { return line_number_; }
  // Whether the line next() returned last had an end; only a file's last line may have none.
  bool line_was_ended() const { return line_was_ended_; }
  // "path:line", for messages.
  std::string where() const;

 private:
  bool fill();
  void check(std::string& line) const;

  std::string path_;
  GzipFile file_;
  std::vector<char> buffer_;
  size_t position_ = 0, size_ = 0;
  int64_t line_number_ = 0;
  bool line_was_ended_ = false;
};

// Whether a file's name ends so, or so and ".gz", letter case aside: "a.TSV" and "a.tsv.gz" end with ".tsv".
bool has_ending(const std::string& path, std::string_view ending);

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
