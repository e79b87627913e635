#include "base/files.h"
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string_view>
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

// The writing half of files.h.

// A rename is only durable once the folder that holds the name is.
bool sync_folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == path.npos ? "." : path.substr(0, slash + 1);
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.open()) return errno == EACCES;            // a folder we may write but not read cannot be synced
  return ::fsync(descriptor.get()) == 0 || errno == EINVAL;  // EINVAL: this file system has nothing to sync
}

std::string read_holder(int descriptor) {
  char text[32] = {};
  const ssize_t got = ::pread(descriptor, text, sizeof text - 1, 0);
  const size_t digits = got > 0 ? std::strspn(text, "0123456789") : 0;
  return std::string(text, digits);
}

// A process that was killed a moment ago keeps its lock until the system has taken it apart, and so does a child it had
// forked. When the holder written down is gone, the lock is tried again for half a second.
bool lock_patiently(int descriptor) {
  constexpr int kAttempts = 50;
  for (int attempt = 0;; ++attempt) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return false;
    const std::string holder = read_holder(descriptor);
    const bool gone = !holder.empty() && ::kill(std::atoi(holder.c_str()), 0) != 0 && errno == ESRCH;
    errno = EWOULDBLOCK;
    if (!gone || attempt == kAttempts) return false;
    const timespec pause{0, 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

// "org/name", of the characters that the Hub allows.
bool is_hub_name(std::string_view path) {
  const size_t slash = path.find('/');
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  };
  const auto is_part = [&](std::string_view part) {
    return !part.empty() && part[0] != '.' && std::ranges::all_of(part, is_allowed);
  };
  return slash != path.npos && is_part(path.substr(0, slash)) && is_part(path.substr(slash + 1));
}

}  // namespace

namespace {

std::string read_all(const OpenFile& file, const std::string& path) {
  std::string bytes;
  if (S_ISREG(file.status.st_mode)) bytes.reserve(static_cast<size_t>(file.status.st_size));
  if (!read_to_end(file.descriptor.get(), bytes)) fail_read(path, errno);
  return bytes;
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
  return read_all(file, path);
}

std::string read_input(const std::string& path) {
  if (auto bytes = read_packed(path)) return std::move(*bytes);
  return read_all(OpenFile(path), path);
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
  fail_errno(message);
}

uint64_t free_disk_bytes(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(path, ignored);
  struct statvfs status {};
  while (::statvfs(folder.c_str(), &status) != 0) {
    if ((errno != ENOENT && errno != ENOTDIR) || folder == folder.parent_path())
      fail_errno("cannot ask for the free space of '" + path + "'");
    folder = folder.parent_path();
  }
  return static_cast<uint64_t>(status.f_bavail) * status.f_frsize;
}

void check_free_disk(const std::string& path, uint64_t need, const std::string& what, const std::string& use) {
  if (const uint64_t free = free_disk_bytes(path); need > free)
    fail_user(what + " needs " + std::to_string(need / 1000000) + " MB" + use + ", and its disk has " +
              std::to_string(free / 1000000) + " MB free");
}

MappedFile::MappedFile(const std::string& path) {
  const OpenFile file(path, O_NONBLOCK);
  if (!S_ISREG(file.status.st_mode)) fail_irregular(path);
  size_ = static_cast<size_t>(file.status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (mapped == MAP_FAILED) fail_errno("cannot map '" + path + "' into memory");
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

AtomicFile::AtomicFile(const std::string& path) : path_(path), temporary_(path + ".tmp") {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode))
    fail_user("cannot write '" + path + "': Is a directory");
  is_device_ = ::stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode);
  const std::string& target = is_device_ ? path_ : temporary_;
  descriptor_ = ::open(target.c_str(), O_WRONLY | O_CLOEXEC | (is_device_ ? 0 : O_CREAT | O_TRUNC), 0666);
  if (descriptor_ < 0) fail_errno("cannot write '" + path_ + "'");
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
  fail_errno("cannot write '" + path_ + "'");
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
  if (!sync_folder_of(path_)) fail_errno("cannot sync the folder of '" + path_ + "'");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  struct stat status {};
  if (!file.open() || ::fstat(file.get(), &status) != 0) fail_errno("cannot write '" + path + "'");
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
    fail_errno("cannot write '" + path_ + "'");
  }
  size_ += line_.size();
}

void AppendFile::truncate_to(uint64_t bytes) {
  if (bytes > size_)
    fail_user("'" + path_ + "' has " + std::to_string(size_) + " bytes, fewer than the " + std::to_string(bytes) +
              " that were written: it was changed or replaced");
  if (::ftruncate(descriptor_, static_cast<off_t>(bytes)) != 0) fail_errno("cannot shorten '" + path_ + "'");
  size_ = bytes;
}

void AppendFile::sync() {
  if (::fsync(descriptor_) != 0) fail_errno("cannot write '" + path_ + "'");
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.open()) fail_errno("cannot write to the run folder '" + folder + "'");
  if (!lock_patiently(file.get())) {
    if (errno != EWOULDBLOCK) fail_errno("cannot lock the run folder '" + folder + "'");
    const std::string holder = read_holder(file.get());
    fail_user("run folder '" + folder + "' is in use by " + (holder.empty() ? "another process" : "process " + holder));
  }
  const std::string self = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) != 0 || !write_all(file.get(), self.data(), self.size()))
    fail_errno("cannot write to the run folder '" + folder + "'");
  descriptor_ = file.release();
}

// The file stays: removing it would let a third process lock a new file while a second one waits for the old.
FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

std::string missing_model_hint(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth"))
    return "; take the folder that holds it and a config.json";
  if (file_exists(path + "/adapter_config.json"))
    return "; it holds an adapter: take the model's folder, with --adapter " + path;
  if (file_exists(path + "/0_Transformer/config.json"))
    return "; it is a sentence-transformers folder as it was before 2021: move the files of " + path +
           "/0_Transformer into it, and set that \"path\" in modules.json to \"\"";
  if (path.starts_with("models/") && !file_exists(path))  // of a preset
    return "; --set model.from=FOLDER names the model to start from";
  if (path.find(' ') != path.npos && path.find('/') == path.npos && !file_exists(path))
    return "; a text comes from standard input: echo TEXT |";
  // A folder beside others, such as "runs/a", is rather a run that is not there.
  const std::string parent = path.substr(0, path.find('/'));
  if (!file_exists(path) && is_hub_name(path) && !file_exists(parent))
    return "; if that is a name on the Hugging Face Hub, download it first: `hf download " + path + " --local-dir " +
           path.substr(path.find('/') + 1) + "`";
  return "";
}

}  // namespace linnet
