#include "base/packed_files.h"
#include <sys/stat.h>
#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <tuple>
#include "base/fail.h"

namespace linnet {
namespace {
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
