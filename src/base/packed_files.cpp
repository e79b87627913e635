#include "base/packed_files.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <tuple>
#include "base/error.h"
#include "base/lost_pages.h"

namespace linnet {

namespace {

struct Kind {
  const char* ending;
  std::atomic<PackedReader> reader{nullptr};
};
Kind kinds[] = {{kPackedEnding}, {kGgufEnding}};

// Null where files of that name are not read as folders.
PackedReader reader_of(std::string_view path) {
  for (const Kind& kind : kinds)
    if (path.ends_with(kind.ending)) return kind.reader;
  return nullptr;
}

// What tells a file from one that has replaced it.
using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long>;

bool stat_regular(const std::string& path, struct stat& status) {
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

struct Opened {
  std::string path;
  Stamp stamp;
  std::shared_ptr<const PackedFiles> files;
};

// Opening a model reads several of its files one by one. A file that is in use beyond that has owners elsewhere.
constexpr size_t kKept = 4;

}  // namespace

void set_packed_reader(const char* ending, PackedReader reader) {
  for (Kind& kind : kinds)
    if (std::string_view(ending) == kind.ending) kind.reader = reader;
}

bool is_packed(const std::string& path) {
  struct stat status {};
  return path.ends_with(kPackedEnding) && reader_of(path) && stat_regular(path, status);
}

bool is_gguf(const std::string& path) {
  struct stat status {};
  return path.ends_with(kGgufEnding) && reader_of(path) && stat_regular(path, status);
}

std::shared_ptr<const PackedFiles> open_packed(const std::string& path) {
  static std::mutex mutex;
  static std::list<Opened> opened;  // what was asked for last is first
  struct stat status {};
  if (!stat_regular(path, status)) fail_user("there is no file '" + path + "'");
  const Stamp stamp{status.st_dev, status.st_ino, status.st_size, status.st_mtim.tv_sec, status.st_mtim.tv_nsec};
  const std::lock_guard lock(mutex);
  const auto found = std::ranges::find(opened, path, &Opened::path);
  if (found != opened.end() && found->stamp == stamp) {
    opened.splice(opened.begin(), opened, found);
    return found->files;
  }
  if (found != opened.end()) opened.erase(found);
  opened.push_front({path, stamp, std::make_shared<const PackedFiles>(reader_of(path)(path))});
  if (opened.size() > kKept) opened.pop_back();
  return opened.front().files;
}

PackedPath split_packed_path(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string packed = path.substr(0, slash);
    if (!is_packed(packed) && !is_gguf(packed)) continue;
    const size_t inside = path.find_first_not_of('/', slash);
    return {packed, inside == std::string::npos ? "" : path.substr(inside)};
  }
  return {};
}

bool is_folder(const std::string& path) {
  struct stat status {};
  if (is_packed(path) || is_gguf(path)) return true;
  if (::stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  const PackedPath inside = split_packed_path(path);
  return !inside.packed.empty() && open_packed(inside.packed)->has_folder(inside.inside);
}

bool PackedFiles::has_folder(const std::string& inside) const {
  const auto first = files.lower_bound(inside + "/");
  return first != files.end() && first->first.starts_with(inside + "/");
}

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
    fail_errno("cannot map '" + path + "' into memory");
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
    fail_errno("cannot map weights into memory");
  watch_pages(path_, data_, at, count);
}

void SharedFile::check() const { check_lost_pages(data_); }

}  // namespace linnet
