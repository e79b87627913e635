#include "data/examples/gzip_file.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>
#include "base/error.h"

namespace linnet {

void check_expansion(const std::string& path, uint64_t expanded, uint64_t compressed) {
  constexpr uint64_t kAlwaysAllowed = 64 << 20, kMostTimes = 200;
  if (expanded <= kAlwaysAllowed || expanded / kMostTimes <= compressed) return;
  fail_user(
      "'" + path + "' expands to more than 64 MiB and " + std::to_string(kMostTimes) +
      " times its size, as files made to fill a memory do; if it is what it should be, expand it first (gzip -d)");
}

GzipFile::GzipFile(const std::string& path, const std::string& needed) : path_(path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) fail_user("cannot read '" + path + "': " + std::strerror(errno));
  struct stat status {};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    fail_user("cannot read '" + path + "': it is a directory" + needed);
  }
  file_bytes_ = static_cast<uint64_t>(status.st_size);
  // zlib passes a file that does not begin with the gzip magic through unchanged.
  file_ = ::gzdopen(descriptor, "rb");
  if (file_ == nullptr) {
    ::close(descriptor);
    fail_system("out of memory while opening '" + path + "'");
  }
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
  if (code == Z_BUF_ERROR) fail_user("'" + path_ + "' is a truncated gzip file");
  if (code == Z_ERRNO) fail_user("cannot read '" + path_ + "': " + std::strerror(errno));
  if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
    const std::string_view reason(text);  // zlib's own words start with its name of the file, "<fd:3>: "
    const size_t colon = reason.find(": ");
    fail_user("'" + path_ + "' is a corrupt gzip file (" +
              std::string(colon == reason.npos ? reason : reason.substr(colon + 2)) + ")");
  }
}

}  // namespace linnet
