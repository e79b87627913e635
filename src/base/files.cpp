#include "base/files.h"
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <list>
#include <mutex>
#include <tuple>
#include "base/fail.h"
#include "base/text.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

[[noreturn]] void fail_read(const std::string& path, int code) {
  fail_user("cannot read '", path, "': ", std::strerror(code));
}

// Opening a folder for reading succeeds and only reading fails, so the type is checked first.
struct OpenFile {
  Descriptor descriptor;
  struct stat status {};

  explicit OpenFile(const std::string& path, bool is_regular)  // a pipe without a writer is not waited for then
      : descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | (is_regular ? O_NONBLOCK : 0))) {
    if (!descriptor.open() || ::fstat(descriptor.get(), &status) != 0) fail_read(path, errno);
    if (S_ISDIR(status.st_mode)) fail_read(path, EISDIR);
    if (is_regular && !S_ISREG(status.st_mode)) fail_user("cannot read '", path, "': not a regular file");
  }
};

// A rename is durable only once the folder is synced.
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

// A killed process, or a child it forked, keeps its lock until the system has taken it apart. If the recorded holder is
// gone, the lock is tried again for half a second.
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

// "org/name", in the characters that the Hub allows
bool is_hub_name(std::string_view path) {
  const size_t slash = path.find('/');
  const auto is_part = [](std::string_view part) {
    constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyz0123456789-_.";
    return !part.empty() && part[0] != '.' && lower_ascii(part).find_first_not_of(kAllowed) == std::string::npos;
  };
  return slash != path.npos && is_part(path.substr(0, slash)) && is_part(path.substr(slash + 1));
}

std::string read_all(const std::string& path, bool is_regular) {
  if (const PackedPath inside = split_packed_path(path); !inside.packed.empty()) {
    const auto packed = open_packed(inside.packed);
    const auto found = packed->files.find(inside.inside);
    if (found == packed->files.end()) fail_read(path, ENOENT);
    return std::string(found->second);
  }
  const OpenFile file(path, is_regular);
  std::string bytes;
  if (S_ISREG(file.status.st_mode)) bytes.reserve(file.status.st_size);
  if (!read_to_end(file.descriptor.get(), bytes)) fail_read(path, errno);
  return bytes;
}

struct Kind {
  const char* ending;
  std::atomic<PackedReader> reader{nullptr};
};
Kind kinds[] = {{kPackedEnding}, {kGgufEnding}};

// Returns null if files of that name are not read as folders.
PackedReader reader_of(std::string_view path) {
  for (const Kind& kind : kinds)
    if (path.ends_with(kind.ending)) return kind.reader;
  return nullptr;
}

// Identifies the version of a file.
using Stamp = std::tuple<dev_t, ino_t, off_t, time_t, long>;

bool stat_regular(const std::string& path, struct stat& status) {
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

bool is_read_as_folder(const std::string& path) {
  struct stat status {};
  return reader_of(path) && stat_regular(path, status);
}

struct Opened {
  std::string path;
  Stamp stamp;
  std::shared_ptr<const PackedFiles> files;
};

// Opening a model reads several of its files one by one. A file used longer has other owners.
constexpr size_t kKept = 4;
}  // namespace

std::string read_file(const std::string& path) { return read_all(path, true); }
std::string text_if_there(const std::string& path) { return file_exists(path) ? read_file(path) : ""; }
std::string read_input(const std::string& path) { return read_all(path, false); }

bool file_exists(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0) return true;
  if (errno != ENOTDIR) return false;
  const PackedPath inside = split_packed_path(path);
  if (inside.packed.empty()) return false;
  const auto packed = open_packed(inside.packed);
  if (packed->has_weights && inside.inside == "model.safetensors") return true;
  return packed->files.contains(inside.inside) || packed->has_folder(inside.inside);
}

std::string path_in(const std::string& folder, const std::string& name) { return (fs::path(folder) / name).string(); }

void make_directories(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && fs::is_directory(path, error)) return;
  const int code = error ? error.value() : ENOTDIR;
  for (fs::path part = path; part.has_relative_path(); part = part.parent_path())
    if (fs::is_symlink(part, error) && !fs::is_directory(part, error))
      fail_user("cannot make the folder '", path, "': '", part.string(), "' is a link to '",
          fs::read_symlink(part, error).string(), "', which is no folder");
  const std::string message = "cannot make the folder '" + path + "': " + std::strerror(code);
  if (code == ENOTDIR || code == EEXIST || code == ENAMETOOLONG || code == ENOENT) fail_user(message);
  fail_system(message);
}

uint64_t free_disk_bytes(const std::string& path) {
  std::error_code ignored;
  fs::path folder = fs::absolute(path, ignored);
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
    fail_user(what, " needs ", printed("%.1f", static_cast<double>(need) / 1e6), " MB", use, ", and its disk has ",
        printed("%.1f", static_cast<double>(free) / 1e6), " MB free");
}

MappedFile::MappedFile(const std::string& path) {
  Descriptor closes;
  *this = MappedFile(path, closes);
}

MappedFile::MappedFile(const std::string& path, Descriptor& descriptor) {
  OpenFile file(path, true);
  descriptor = std::move(file.descriptor);
  size_ = static_cast<size_t>(file.status.st_size);
  if (size_ == 0) return;
  void* mapped = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, descriptor.get(), 0);
  if (mapped == MAP_FAILED) fail_errno("cannot map '" + path + "' into memory");
  data_ = {static_cast<const std::byte*>(mapped), [mapped, size = size_](const std::byte* data) {
             unwatch_pages(data);
             ::munmap(mapped, size);
           }};
  watch_pages(path, data(), data(), size_);
}

void MappedFile::drop_pages() const {
  if (data_) ::madvise(const_cast<std::byte*>(data()), size_, MADV_DONTNEED);
}

void SharedFile::map_over(std::byte* at, size_t offset, size_t count) const {
  if (reinterpret_cast<uintptr_t>(at) % kPage != 0 || offset % kPage != 0 || offset + count > size_)
    fail_internal("a file is mapped at bytes that do not begin a page or that it does not have");
  if (count == 0) return;
  constexpr int kOver = MAP_PRIVATE | MAP_FIXED;
  if (::mmap(at, count, PROT_READ | PROT_WRITE, kOver, descriptor_.get(), static_cast<off_t>(offset)) == MAP_FAILED)
    fail_errno("cannot map weights into memory");
  watch_pages(path_, data(), at, count);
}

void SharedFile::check() const { check_lost_pages(data()); }

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  struct stat status {};
  const bool is_there = ::stat(path.c_str(), &status) == 0;
  if (!is_there && errno == ELOOP) fail_errno("cannot write '" + path + "'");
  if (is_there && S_ISDIR(status.st_mode)) fail_user("cannot write '", path, "': Is a directory");
  std::error_code error;
  fs::path target = path, next;
  const auto is_open = [&] { return fs::equivalent(target.parent_path(), "/proc/self/fd", error); };  // /dev/stdout
  while (!is_open() && !(next = fs::read_symlink(target, error)).empty()) target = target.parent_path() / next;
  target_ = target.string(), temporary_ = target_ + ".tmp";
  is_device_ = is_there && (is_open() || !S_ISREG(status.st_mode));
  descriptor_ = Descriptor(!is_device_ ? ::open(temporary_.c_str(), O_WRONLY | O_CLOEXEC | O_CREAT | O_TRUNC, 0666)
                           : is_open() ? ::fcntl(std::atoi(target.filename().c_str()), F_DUPFD_CLOEXEC, 0)
                                       : ::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (!descriptor_.open()) fail_errno("cannot write '" + path_ + "'");
  if (is_there && !is_device_) ::fchmod(descriptor_.get(), status.st_mode & 07777);
}

AtomicFile::~AtomicFile() {
  if (!committed_ && !is_device_) ::unlink(temporary_.c_str());
}

void AtomicFile::fail() {
  const int code = errno;
  descriptor_.close();
  if (!is_device_) ::unlink(temporary_.c_str());
  errno = code;
  fail_errno("cannot write '" + path_ + "'");
}

void AtomicFile::write(const void* bytes, size_t size) {
  if (!descriptor_.open()) fail_internal("'", path_, "' is written after its end");
  if (!write_all(descriptor_.get(), bytes, size)) fail();
}

void AtomicFile::finish() {
  if (!descriptor_.open()) fail_internal("'", path_, "' is finished twice");
  const bool is_synced = ::fsync(descriptor_.get()) == 0 || (is_device_ && (errno == EINVAL || errno == EROFS));
  if (!is_synced || !descriptor_.close()) fail();
}

void AtomicFile::commit() {
  if (committed_) fail_internal("'", path_, "' is committed twice");
  if (descriptor_.open()) finish();
  committed_ = true;
  if (is_device_) return;
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) committed_ = false, fail();
  if (!sync_folder_of(target_)) fail_errno("cannot sync the folder of '" + path_ + "'");
}

void write_file_atomically(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

AppendFile::AppendFile(const std::string& path) : path_(path) {
  struct stat status {};
  descriptor_ = Descriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666));
  if (!descriptor_.open() || ::fstat(descriptor_.get(), &status) != 0) fail_errno("cannot write '" + path + "'");
  size_ = static_cast<uint64_t>(status.st_size);
}

void AppendFile::write_line(std::string_view line) {
  line_.assign(line);  // keeps its capacity: no allocation once the longest line was seen
  line_ += '\n';
  if (!write_all(descriptor_.get(), line_.data(), line_.size())) {
    const int code = errno;
    [[maybe_unused]] const int ignored = ::ftruncate(descriptor_.get(), static_cast<off_t>(size_));
    errno = code;
    fail_errno("cannot write '" + path_ + "'");
  }
  size_ += line_.size();
}

void AppendFile::truncate_to(uint64_t bytes) {
  if (bytes > size_)
    fail_user("'", path_, "' has ", size_, " bytes, fewer than the ", bytes,
        " that were written: it was changed or replaced");
  if (bytes != size_ && ::ftruncate(descriptor_.get(), static_cast<off_t>(bytes)) != 0)
    fail_errno("cannot shorten '" + path_ + "'");
  size_ = bytes;
}

void AppendFile::sync() {
  if (::fsync(descriptor_.get()) != 0) fail_errno("cannot write '" + path_ + "'");
}

FolderLock::FolderLock(const std::string& folder) : folder_(folder) {
  const std::string path = folder + "/.lock";
  descriptor_ = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  const int file = descriptor_.get();
  if (file < 0) fail_errno("cannot write to the run folder '" + folder + "'");
  if (!lock_patiently(file)) {
    if (errno != EWOULDBLOCK) fail_errno("cannot lock the run folder '" + folder + "'");
    const std::string holder = read_holder(file);
    fail_user("run folder '", folder, "' is in use by ", holder.empty() ? "another process" : "process " + holder);
  }
  const std::string self = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file, 0) != 0 || !write_all(file, self.data(), self.size()))
    fail_errno("cannot write to the run folder '" + folder + "'");
}

void FolderLock::check() const {
  struct stat held {
  }, named{};
  if (::fstat(descriptor_.get(), &held) != 0 || ::stat((folder_ + "/.lock").c_str(), &named) != 0 ||
      held.st_ino != named.st_ino || held.st_dev != named.st_dev)
    fail_user("the folder '", folder_, "' was removed or replaced while this process wrote to it");
}

TemporaryFolder::TemporaryFolder(const std::string& beginning) : path_(beginning + "XXXXXX") {
  if (!::mkdtemp(path_.data())) fail_errno("cannot make a folder in " + fs::path(path_).parent_path().string());
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

OutputFolder::~OutputFolder() { ::rmdir(path_.c_str()); }  // which fails if the folder holds anything

std::string missing_model_hint(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth"))
    return "; take the folder that holds it and a config.json";
  if (path.ends_with(".onnx") && file_exists(path))
    return "; `linnet onnx run` runs it, `linnet train ... --set model.from=" + path + "` trains it";
  if (file_exists(path + "/adapter_config.json"))
    return "; it holds an adapter: take the model's folder, with --adapter " + path;
  if (file_exists(path + "/0_Transformer/config.json"))
    return "; it is a sentence-transformers folder as it was before 2021: move the files of " + path +
           "/0_Transformer into it, and set that \"path\" in modules.json to \"\"";
  if (path.starts_with("models/") && !file_exists(path))  // of a preset
    return "; --set model.from=FOLDER names the model to start from";
  if (path.find(' ') != path.npos && path.find('/') == path.npos && !file_exists(path))
    return "; a text comes from standard input: echo TEXT |";
  // If the first folder exists, as in "runs/a", the path is more likely a missing run.
  const std::string parent = path.substr(0, path.find('/'));
  if (!file_exists(path) && is_hub_name(path) && !file_exists(parent))
    return "; if that is a name on the Hugging Face Hub, download it first: `hf download " + path + " --local-dir " +
           path.substr(path.find('/') + 1) + "`";
  return "";
}

void set_packed_reader(const char* ending, PackedReader reader) {
  for (Kind& kind : kinds)
    if (std::string_view(ending) == kind.ending) kind.reader = reader;
}

bool is_packed(const std::string& path) { return path.ends_with(kPackedEnding) && is_read_as_folder(path); }
bool is_gguf(const std::string& path) { return path.ends_with(kGgufEnding) && is_read_as_folder(path); }

std::shared_ptr<const PackedFiles> open_packed(const std::string& path) {
  static std::mutex mutex;
  static std::list<Opened> opened;  // what was asked for last is first
  struct stat status {};
  if (!stat_regular(path, status)) fail_user("there is no file '", path, "'");
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
    if (!is_read_as_folder(packed)) continue;
    const size_t inside = path.find_first_not_of('/', slash);
    return {packed, inside == std::string::npos ? "" : path.substr(inside)};
  }
  return {};
}

bool is_folder(const std::string& path) {
  struct stat status {};
  if (is_read_as_folder(path)) return true;
  if (::stat(path.c_str(), &status) == 0) return S_ISDIR(status.st_mode);
  const PackedPath inside = split_packed_path(path);
  return !inside.packed.empty() && open_packed(inside.packed)->has_folder(inside.inside);
}

bool PackedFiles::has_folder(const std::string& inside) const {
  const auto first = files.lower_bound(inside + "/");
  return first != files.end() && first->first.starts_with(inside + "/");
}
}  // namespace linnet
