#include "data/examples/text/line_reader.h"
#include <cstring>
#include <string_view>
#include "base/error.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {

constexpr size_t kBufferBytes = 1 << 16;

// What a file that is no text starts with, and what to do about it.
struct ForeignFormat {
  std::string_view start;
  const char* is;
};
using namespace std::string_view_literals;
constexpr ForeignFormat kForeignFormats[] = {
    {"PK\x03\x04"sv, "a zip archive; unpack it first (unzip)"},
    {"\xFD\x37zXZ\0"sv, "compressed with xz; decompress it first (xz -d), or use gzip"},
    {"\x28\xB5\x2F\xFD"sv, "compressed with zstd; decompress it first (zstd -d), or use gzip"},
    {"BZh"sv, "compressed with bzip2; decompress it first (bzip2 -d), or use gzip"},
    {"7z\xBC\xAF"sv, "a 7z archive; unpack it first"},
    {"PAR1"sv, "a Parquet file; write its text as .jsonl or .tsv first"},
    {"%PDF"sv, "a PDF; take its text out first (pdftotext)"},
};

}  // namespace

LineReader::LineReader(const std::string& path)
    : path_(path), file_(path, ", a text file is needed"), buffer_(kBufferBytes) {}

std::string LineReader::where() const { return path_ + ":" + std::to_string(line_number_); }

bool LineReader::fill() {
  position_ = 0;
  size_ = file_.read(buffer_.data(), buffer_.size());
  return size_ > 0;
}

bool LineReader::next(std::string& line) {
  line.clear();
  if (position_ == size_ && !fill()) return false;
  ++line_number_;
  line_was_ended_ = false;
  do {
    const char* begin = buffer_.data() + position_;
    const char* end = static_cast<const char*>(std::memchr(begin, '\n', size_ - position_));
    if (end != nullptr) {
      line_was_ended_ = true;
      line.append(begin, end);
      position_ += static_cast<size_t>(end - begin) + 1;
      break;
    }
    // A NUL byte is refused wherever the line ends: the line of a device or a disk image may be larger than memory.
    const void* nul = std::memchr(begin, '\0', size_ - position_);
    line.append(begin, nul != nullptr ? static_cast<const char*>(nul) + 1 : buffer_.data() + size_);
    position_ = size_;
    if (nul != nullptr) break;
  } while (fill());
  check(line);
  return true;
}

void LineReader::check(std::string& line) const {
  const size_t invalid = invalid_utf8_at(line), nul = line.find('\0');
  if (line_number_ == 1 && (invalid != line.npos || nul != line.npos))
    for (const ForeignFormat& format : kForeignFormats)
      if (line.starts_with(format.start)) fail_user("'" + path_ + "' is " + format.is);
  if (invalid != std::string::npos) {
    const bool utf16 = line_number_ == 1 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"));
    fail_user(where() + ": invalid UTF-8 at byte " + std::to_string(invalid + 1) + " of the line" +
              (utf16 ? " (this looks like UTF-16; convert the file to UTF-8)"
                     : " (iconv -f LATIN1 -t UTF-8 converts a file in Latin-1)"));
  }
  if (nul != std::string::npos)
    fail_user(where() + ": NUL byte at byte " + std::to_string(nul + 1) + " of the line; is this a text file?");
  if (line.ends_with('\r')) line.pop_back();
  if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
}

bool has_ending(const std::string& path, std::string_view ending) {
  std::string lower = lower_ascii(path);
  if (lower.ends_with(".gz")) lower.resize(lower.size() - 3);
  return lower.ends_with(ending);
}

}  // namespace linnet
