// The writing half of files.h.
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files.h"

namespace linnet {
namespace {

// A rename is only durable once the folder that holds the name is.
bool sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.open()) return errno == EACCES;            // a folder we may write but not read cannot be synced
  return ::fsync(descriptor.get()) == 0 || errno == EINVAL;  // EINVAL: this file system has nothing to sync
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    fail_user("cannot write '" + path + "': Is a directory");
  is_device_ = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  const std::string& target = is_device_ ? path_ : temporary_;
  descriptor_ = ::open(target.c_str(), O_WRONLY | O_CLOEXEC | (is_device_ ? 0 : O_CREAT | O_TRUNC), 0666);
  if (descriptor_ < 0) fail_system("cannot write '" + path_ + "'");
}

AtomicFile::~AtomicFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
  if (!committed_ && !is_device_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail() {
  const int code = errno;
  if (descriptor_ >= 0) ::close(descriptor_);
  descriptor_ = -1;
  if (!is_device_) ::unlink(temporary_.c_str());
  errno = code;
  fail_system("cannot write '" + path_ + "'");
}

void AtomicFile::write(const void* bytes, size_t size) {
  if (descriptor_ < 0) fail_internal("'" + path_ + "' is written after its end");
  if (!write_all(descriptor_, bytes, size)) fail();
}

void AtomicFile::finish() {
  if (descriptor_ < 0) fail_internal("'" + path_ + "' is finished twice");
  if (::fsync(descriptor_) != 0 && !is_device_) fail();
  Descriptor closing(descriptor_);
  descriptor_ = -1;
  if (!closing.close()) fail();
}

void AtomicFile::commit() {
  if (committed_) fail_internal("'" + path_ + "' is committed twice");
  if (descriptor_ >= 0) finish();
  committed_ = true;
  if (is_device_) return;
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) committed_ = false, fail();
  if (!sync_folder_of(path_)) fail_system("cannot sync the folder of '" + path_ + "'");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  struct stat status {};
  if (!file.open() || ::fstat(file.get(), &status) != 0) fail_system("cannot write '" + path + "'");
  size_ = static_cast<uint64_t>(status.st_size);
  descriptor_ = file.release();
}

AppendFile::~AppendFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void AppendFile::write_line(std::string_view line) {
  line_.assign(line);  // keeps its capacity: no allocation once the longest line was seen
  line_ += '\n';
  if (!write_all(descriptor_, line_.data(), line_.size())) {
    const int code = errno;
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_, static_cast<off_t>(size_));
    errno = code;
    fail_system("cannot write '" + path_ + "'");
  }
  size_ += line_.size();
}

void AppendFile::truncate_to(uint64_t bytes) {
  if (bytes > size_)
    fail_user("'" + path_ + "' has " + std::to_string(size_) + " bytes, fewer than the " + std::to_string(bytes) +
              " that were written: it was changed or replaced");
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail_system("cannot shorten '" + path_ + "'");
  size_ = bytes;
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) fail_system("cannot write '" + path_ + "'");
}

}  // namespace linnet
