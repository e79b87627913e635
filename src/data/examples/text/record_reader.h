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
// Gzip is recognized by its first bytes, not by the name; pipes work too. User errors of one line: a missing or
// unreadable file, a directory, a damaged gzip stream, one that expands too far.
class GzipFile {
 public:
  // `needed` ends the message for a directory: ", a text file is needed".
  explicit GzipFile(const std::string& path, const std::string& needed = "");
  ~GzipFile();
  GzipFile(const GzipFile&) = delete;
  GzipFile& operator=(const GzipFile&) = delete;

  size_t read(void* to, size_t size);  // reads up to `size` bytes: fewer only at the end of the file
  // The file cannot hold more: deflate shrinks at most 1032 times (RFC 1951).
  uint64_t most_bytes() const { return file_bytes_ * 1032; }
  // User error if a file of this size should not expand to `bytes`.
  void check_size(uint64_t bytes) const;

 private:
  void check_end(int got) const;

  std::string path_;
  gzFile_s* file_ = nullptr;
  uint64_t file_bytes_ = 0, expanded_ = 0;
};

// Reads UTF-8 lines through a fixed buffer. "\r\n" ends a line like "\n"; a byte order mark is skipped; the last line
// needs no newline. Every problem is a user error of one line with the file and, if there are, the line and the byte in
// it (from 1): those of GzipFile, invalid UTF-8, a NUL byte. An empty file is an error only in read_lines().
class LineReader {
 public:
  explicit LineReader(const std::string& path);

  // Replaces `line` by the next line without its end; false at the end of the file.
  bool next(std::string& line);
  int64_t line_number() const { return line_number_; }  // of the last next(), from 1
  // Whether the last line had an end; only a file's last line may have none.
  bool line_was_ended() const { return line_was_ended_; }
  std::string where() const;  // "path:line", for messages
  const std::string& path() const { return path_; }

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

std::string read_text(const std::string& path);  // all lines, each with "\n" where it had an end

// Ignores case and a further ".gz": "a.TSV" and "a.tsv.gz" end with ".tsv".
bool has_ending(const std::string& path, std::string_view ending);

// The file's name, perhaps with ".gz", gives the format: .csv has comma-separated values (RFC 4180: quoted fields may
// hold commas, doubled quotes and line ends), or, if the heading has no comma, values between semicolons or tabs, as in
// spreadsheets with decimal commas; .jsonl, .ndjson and .json have a JSON object a line, and .json may also be one
// object or a list of them, over any lines; others have tab-separated fields. Blank lines are skipped.
//
// A .csv begins with a heading; a tab-separated file does if one of its first fields is in `heading`, in any letter
// case. Without a heading fields are "1", "2", ... User errors of one line name file and line: LineReader's, an open
// quote, a record with another number of fields than the first, a heading with a name twice, a table whose
// lines end in carriage returns alone, a line that is no JSON object.
class RecordReader {
 public:
  RecordReader(const std::string& path, std::span<const std::string_view> heading);

  // Replaces `record` by the next one, an object; false at the end. Fields of tables are strings.
  bool next(Json& record);
  // "path:line" of the first line of the last record, or "path: entry N" of a list, for messages.
  const std::string& where() const { return where_; }
  // The same of what names the fields: a table's heading, else the last record.
  const std::string& where_named() const { return heading_where_.empty() ? where_ : heading_where_; }

 private:
  bool next_line(std::string& line);  // that is not blank; sets where_
  bool read_json(Json& record);
  Json read_whole(const std::string& first);  // a .json file that begins with this line; null: it has JSON lines
  bool read_fields(std::vector<std::string>& fields);
  void split_quoted(std::string line, std::vector<std::string>& fields);

  LineReader lines_;
  const std::vector<std::string_view> heading_;
  enum class Form { kTabs, kQuoted, kJson } form_;
  char separator_ = ',';            // of kQuoted
  std::vector<std::string> names_;  // of the fields, once the first line was read
  std::string where_, heading_where_;
  Json list_;  // of a .json file
  size_t next_entry_ = 0;
};

// Whether the name is that of JSON lines, or of these or a table.
bool has_json(const std::string& path);
bool has_records(const std::string& path);
}  // namespace linnet
