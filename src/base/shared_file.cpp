#include "base/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/lost_pages.h"

namespace linnet {

SharedFile::SharedFile(const std::string& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (descriptor_ < 0) fail_user("cannot open '" + path + "': " + std::strerror(errno));
  struct stat status {};
  const bool is_regular = ::fstat(descriptor_, &status) == 0 && S_ISREG(status.st_mode);
  size_ = is_regular ? static_cast<size_t>(status.st_size) : 0;
  void* mapped = size_ ? ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor_, 0) : nullptr;
  if (!is_regular || mapped == MAP_FAILED) {
    ::close(descriptor_);
    if (!is_regular) fail_user("'" + path + "' is not a regular file");
    fail_system("cannot map '" + path + "' into memory");
  }
  data_ = static_cast<const std::byte*>(mapped);
  watch_pages(path_, data_, data_, size_);
}

SharedFile::~SharedFile() {
  unwatch_pages(data_);
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
  ::close(descriptor_);
}

void SharedFile::drop_pages() const {
  if (data_) ::madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

void SharedFile::map_over(std::byte* at, size_t offset, size_t count) const {
  if (reinterpret_cast<uintptr_t>(at) % kPage != 0 || offset % kPage != 0 || offset + count > size_)
    fail_internal("a file is mapped at bytes that do not begin a page or that it does not have");
  if (count == 0) return;
  if (::mmap(at, count, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, descriptor_, static_cast<off_t>(offset)) ==
      MAP_FAILED)
    fail_system("cannot map weights into memory");
  watch_pages(path_, data_, at, count);
}

void SharedFile::check() const { check_lost_pages(data_); }

}  // namespace linnet
