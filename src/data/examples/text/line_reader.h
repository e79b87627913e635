// Lines of a text file, plain or gzip, one at a time and checked.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>
#include "data/examples/gzip_file.h"

namespace linnet {

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

}  // namespace linnet
