#include "data/examples/text/record_reader.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <zlib.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include "base/fail.h"
#include "base/files.h"
#include "base/process.h"
#include "base/text.h"
#include "data/text/unicode/utf8.h"

namespace linnet {
namespace {
// User error if `compressed` bytes of gzip give `expanded` bytes, more than 64 MiB and more than 200 times as many.
// Text and images expand 3 to 20 times. Uncompressed files have no limit.
void check_expansion(const std::string& path, uint64_t expanded, uint64_t compressed) {
  constexpr uint64_t kAlwaysAllowed = 64 << 20, kMostTimes = 200;
  if (expanded <= kAlwaysAllowed || expanded / kMostTimes <= compressed) return;
  fail_user("'", path, "' expands to more than 64 MiB and ", kMostTimes,
      " times its size, as files made to fill a memory do; if it is what it should be, expand it first (gzip -d)");
}

constexpr size_t kBufferBytes = 1 << 16;

// The beginning of a file that is no text, and advice.
using namespace std::string_view_literals;
constexpr std::pair<std::string_view, const char*> kForeignFormats[] = {
    {"PK\x03\x04"sv, "a zip archive; unpack it first (unzip), or save a spreadsheet as .csv"},
    {"\xFD\x37zXZ\0"sv, "compressed with xz; decompress it first (xz -d), or use gzip"},
    {"\x28\xB5\x2F\xFD"sv, "compressed with zstd; decompress it first (zstd -d), or use gzip"},
    {"BZh"sv, "compressed with bzip2; decompress it first (bzip2 -d), or use gzip"},
    {"7z\xBC\xAF"sv, "a 7z archive; unpack it first"},
    {"PAR1"sv, "a Parquet file; write its text as .jsonl or .tsv first"},
    {"%PDF-"sv, "a PDF; take its text out first (pdftotext)"},
    {"\xD0\xCF\x11\xE0"sv, "an old file of Office (.xls, .doc); save a spreadsheet as .csv, a document as text"},
    {"ARROW1\0"sv, "an Arrow file; write its text as .jsonl or .tsv first"},
};
}  // namespace

GzipFile::GzipFile(const std::string& path, const std::string& needed) : path_(path) {
  Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.open()) fail_user("cannot read '", path, "': ", std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor.get(), &status) == 0 && S_ISDIR(status.st_mode))
    fail_user("cannot read '", path, "': it is a directory", needed);
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  // zlib passes a file without the gzip magic through unchanged.
  file_ = ::gzdopen(descriptor.get(), "rb");
  if (file_ == nullptr) fail_system("out of memory while opening '" + path + "'");
  descriptor.release();  // zlib closes it
  ::gzbuffer(file_, 1 << 16);
}

GzipFile::~GzipFile() { ::gzclose_r(file_); }

size_t GzipFile::read(void* to, size_t size) {
  size_t done = 0;
  while (done < size) {
    errno = 0;
    const int got =
        ::gzread(file_, static_cast<char*>(to) + done, static_cast<unsigned>(std::min<size_t>(size - done, 1 << 30)));
    if (got <= 0) check_end(got);
    if (got <= 0) break;
    done += static_cast<size_t>(got);
    expanded_ += static_cast<uint64_t>(got);
    if (!::gzdirect(file_)) check_expansion(path_, expanded_, static_cast<uint64_t>(::gzoffset(file_)));
  }
  return done;
}

void GzipFile::check_size(uint64_t bytes) const {
  if (!::gzdirect(file_)) check_expansion(path_, bytes, file_bytes_);
}

void GzipFile::check_end(int got) const {
  int code = Z_OK;
  const char* text = ::gzerror(file_, &code);
  if (code == Z_BUF_ERROR) fail_user("'", path_, "' is a truncated gzip file");
  if (code == Z_ERRNO) fail_user("cannot read '", path_, "': ", std::strerror(errno));
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    const std::string_view reason(text);  // zlib's own words start with its name of the file, "<fd:3>: "
    const size_t colon = reason.find(": ");
    fail_user("'", path_, "' is a corrupt gzip file (", colon == reason.npos ? reason : reason.substr(colon + 2), ")");
  }
}

LineReader::LineReader(const std::string& path)
    : path_(path), file_(path, ", a text file is needed"), buffer_(kBufferBytes) {}

std::string LineReader::where() const { return path_ + ":" + std::to_string(line_number_); }

bool LineReader::fill() {
  MemoryLimit::check();
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
    // A NUL byte ends reading at once: the line of a device or a disk image may exceed memory.
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
  const bool is_binary = invalid != line.npos || nul != line.npos || line.starts_with("%PDF-");
  if (line_number_ == 1 && is_binary)
    for (const auto& [start, advice] : kForeignFormats)
      if (line.starts_with(start)) fail_user("'", path_, "' is ", advice);
  if (invalid != std::string::npos) {
    const bool utf16 = line_number_ == 1 && (line.starts_with("\xFF\xFE") || line.starts_with("\xFE\xFF"));
    fail_user(where(), ": invalid UTF-8 at byte ", invalid + 1, " of the line",
        utf16 ? " (this looks like UTF-16; convert the file to UTF-8)"
              : " (iconv -f LATIN1 -t UTF-8 converts a file in Latin-1)");
  }
  if (nul != std::string::npos)
    fail_user(where(), ": NUL byte at byte ", nul + 1, " of the line; is this a text file?");
  if (line.ends_with('\r')) line.pop_back();
  if (line_number_ == 1 && line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
}

std::string read_text(const std::string& path) {
  LineReader reader(path);
  std::string text;
  for (std::string line; reader.next(line);) {
    text += line;
    if (reader.line_was_ended()) text += '\n';
  }
  return text;
}

bool has_ending(const std::string& path, std::string_view ending) {
  std::string lower = lower_ascii(path);
  if (lower.ends_with(".gz")) lower.resize(lower.size() - 3);
  return lower.ends_with(ending);
}

bool has_json(const std::string& path) {
  return has_ending(path, ".jsonl") || has_ending(path, ".ndjson") || has_ending(path, ".json");
}

bool has_records(const std::string& path) {
  return has_json(path) || has_ending(path, ".csv") || has_ending(path, ".tsv");
}

RecordReader::RecordReader(const std::string& path, std::span<const std::string_view> heading)
    : lines_(path), heading_(heading.begin(), heading.end()), form_(has_ending(path, ".csv") ? Form::kQuoted
                                                                    : has_json(path)         ? Form::kJson
                                                                                             : Form::kTabs) {}

bool RecordReader::next(Json& record) {
  if (form_ == Form::kJson) return read_json(record);
  std::vector<std::string> fields;
  if (!read_fields(fields)) return false;
  if (names_.empty()) {
    const bool has_heading = form_ == Form::kQuoted || std::ranges::any_of(fields, [&](const std::string& field) {
      return contains(heading_, lower_ascii(trimmed(field)), [](auto name) { return lower_ascii(name); });
    });
    for (size_t i = 0; i < fields.size(); ++i) {
      std::string name = has_heading ? std::string(trimmed(fields[i])) : std::to_string(i + 1);
      if (!name.empty() && contains(names_, name)) fail_user(where_, ": the heading names \"", name, "\" twice");
      names_.push_back(std::move(name));
    }
    if (has_heading) heading_where_ = where_;
    if (has_heading && !read_fields(fields)) return false;
  }
  if (fields.size() != names_.size())
    fail_user(where_, ": ", fields.size(), fields.size() == 1 ? " field" : " fields", ", where ",
        heading_where_.empty() ? "the first line" : "the heading", " has ", names_.size());
  record = Json::object();
  for (size_t i = 0; i < fields.size(); ++i) record[names_[i]] = std::move(fields[i]);
  return true;
}

bool RecordReader::next_line(std::string& line) {
  do {
    if (!lines_.next(line)) return false;
  } while (trimmed(line).empty());
  where_ = lines_.where();
  return true;
}

bool RecordReader::read_json(Json& record) {
  const bool is_first = where_.empty();
  if (next_entry_ < list_.size()) {
    where_ = lines_.path() + ": entry " + std::to_string(next_entry_ + 1);
    record = std::move(list_.begin()[next_entry_++]);
  } else {
    std::string line;
    if (!next_line(line)) return false;
    record = is_first && has_ending(lines_.path(), ".json") ? read_whole(line) : Json();
    if (record.is_array()) {
      list_ = std::move(record);
      return read_json(record);
    }
    if (record.is_null()) record = Json::parse(line, where_ + ": the line", JsonLimits::settings().with_unique_keys());
  }
  if (!record.is_object()) fail_user(where_, list_.empty() ? ": the line is no JSON object" : " is no JSON object");
  return true;
}

Json RecordReader::read_whole(const std::string& first) {
  const JsonLimits limits = JsonLimits::tables().with_unique_keys();
  Json value = Json::parse_or_null(first, limits);
  if (!value.is_null()) return value;
  std::string text = first;
  for (std::string line; lines_.next(line);) text += '\n' + line;
  return first.starts_with('[') ? Json::parse(text, "'" + lines_.path() + "'", limits)
                                : Json::parse_or_null(text, limits);
}

bool RecordReader::read_fields(std::vector<std::string>& fields) {
  fields.clear();
  std::string line;
  if (!next_line(line)) return false;
  if (names_.empty() && !lines_.line_was_ended() && line.find('\r') != line.npos)
    fail_user(
        "the lines of '", lines_.path(), "' end in carriage returns alone; tr '\\r' '\\n' makes line feeds of them");
  if (form_ == Form::kQuoted) {
    if (const bool is_heading = names_.empty(); is_heading && line.find(',') == line.npos)
      for (const char other : {';', '\t'})
        if (line.find(other) != line.npos) separator_ = other;
    split_quoted(std::move(line), fields);
    return true;
  }
  for (const std::string_view field : split(line, '\t')) fields.emplace_back(field);
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
          if (!lines_.next(more)) fail_user(where_, ": a quote is not closed before the end of the file");
          line += '\n' + more;
        }
        if (line[i] == '"' && (++i >= line.size() || line[i] != '"')) break;
        field += line[i];
      }
      if (i < line.size() && line[i] != separator_)
        fail_user(where_, ": text behind a closing quote; a quote inside a field is written as two");
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
