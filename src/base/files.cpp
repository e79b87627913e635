#include "base/files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/lost_pages.h"
#include "base/packed_files.h"

namespace linnet {
namespace {

[[noreturn]] void fail_read(const std::string& path, int code) {
  fail_user("cannot read '" + path + "': " + std::strerror(code));
}

// Opening a folder for reading succeeds; only reading it fails. So it is asked for first.
struct OpenFile {
  Descriptor descriptor;
  struct stat status {};

  // With O_NONBLOCK a pipe without a writer is opened at once.
  explicit OpenFile(const std::string& path, int flags = 0)
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | flags)) {
    if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) fail_read(path, errno);
    if (S_ISDIR(status.st_mode)) fail_read(path, EISDIR);
  }
};

}  // namespace

namespace {

std::string read_to_end(const OpenFile& file, const std::string& path) {
  std::string bytes;
  if (S_ISREG(file.status.st_mode)) bytes.reserve(static_cast<size_t>(file.status.st_size));
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(file.descriptor.get(), buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail_read(path, errno);
    if (got == 0) return bytes;
    bytes.append(buffer, static_cast<size_t>(got));
  }
}

[[noreturn]] void fail_irregular(const std::string& path) {
  fail_user("cannot read '" + path + "': not a regular file");
}

// A file inside a packed one; nothing for any other path.
std::optional<std::string> read_packed(const std::string& path) {
  const PackedPath inside = split_packed_path(path);
  if (inside.packed.empty()) return {};
  const auto packed = open_packed(inside.packed);
  const auto found = packed->files.find(inside.inside);
  if (found == packed->files.end()) fail_read(path, ENOENT);
  return std::string(found->second);
}

}  // namespace

std::string read_file(const std::string& path) {
  if (auto bytes = read_packed(path)) return std::move(*bytes);
  const OpenFile file(path, O_NONBLOCK);
  if (!S_ISREG(file.status.st_mode)) fail_irregular(path);
  return read_to_end(file, path);
}

std::string read_input(const std::string& path) {
  if (auto bytes = read_packed(path)) return std::move(*bytes);
  return read_to_end(OpenFile(path), path);
}

bool file_exists(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  if (errno != ENOTDIR) return false;
  const PackedPath inside = split_packed_path(path);
  if (inside.packed.empty()) return false;
  const auto packed = open_packed(inside.packed);
  if (packed->has_weights && inside.inside == "model.safetensors") return true;
  return packed->files.contains(inside.inside) || packed->has_folder(inside.inside);
}

void make_directories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error && std::filesystem::is_directory(path, error)) return;
  const int code = error ? error.value() : ENOTDIR;
  const std::string message = "cannot make the folder '" + path + "'";
  if (code == ENOTDIR || code == EEXIST || code == ENAMETOOLONG || code == ENOENT)
    fail_user(message + ": " + std::strerror(code));
  errno = code;
  fail_system(message);
}

uint64_t free_disk_bytes(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(path, ignored);
  struct statvfs status {};
  while (::statvfs(folder.c_str(), &status) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || folder == folder.parent_path())
      fail_system("cannot ask for the free space of '" + path + "'");
    folder = folder.parent_path();
  }
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

MappedFile::MappedFile(const std::string& path) {
  const OpenFile file(path, O_NONBLOCK);
  if (!S_ISREG(file.status.st_mode)) fail_irregular(path);
  size_ = static_cast<size_t>(file.status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (mapped == MAP_FAILED) fail_system("cannot map '" + path + "' into memory");
  data_ = static_cast<const std::byte*>(mapped);
  watch_pages(path, data_, data_, size_);
}

void MappedFile::drop_pages() const {
  if (data_) madvise(const_cast<std::byte*>(data_), size_, MADV_DONTNEED);
}

MappedFile::~MappedFile() {
  unwatch_pages(data_);
  if (data_) ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace linnet
