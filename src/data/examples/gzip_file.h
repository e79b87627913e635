// The bytes of a file, plain or gzip.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

struct gzFile_s;

namespace linnet {

// User error when a gzip file of `compressed` bytes, or so many bytes of it, gives `expanded` bytes: more than 64 MiB
// and more than 200 times as many. Text and pictures expand 3 to 20 times. Files that are not compressed have no limit.
void check_expansion(const std::string& path, uint64_t expanded, uint64_t compressed);

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

}  // namespace linnet
