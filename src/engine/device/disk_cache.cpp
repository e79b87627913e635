#include "engine/device/disk_cache.h"
#include <fcntl.h>
#include <unistd.h>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include "base/files.h"
#include "base/numbers.h"
#include "base/process.h"
#include "base/text.h"

namespace linnet {
namespace {
namespace fs = std::filesystem;

constexpr uint64_t kMagic = 0x314843'41434e4cu;  // "LNCACH1"
constexpr uint64_t kMostBytes = 1u << 30;

struct Header {  // then the key, then the bytes
  uint64_t magic, key_size, size, checksum;
};

uint64_t checksum(std::string_view key, std::string_view bytes) { return fnv1a(bytes, fnv1a(key)); }

// Empty without a folder for a cache.
fs::path folder() {
  if (const std::string own = environment("LINNET_CACHE"); !own.empty()) return own;
  // A relative path must be ignored (XDG Base Directory Specification).
  if (const fs::path user = environment("XDG_CACHE_HOME"); user.is_absolute()) return user / "linnet";
  if (const fs::path home = environment("HOME"); home.is_absolute()) return home / ".cache" / "linnet";
  return {};
}

std::string file_name(const std::string& kind, const std::string& key) {
  return kind + printed("-%016zx", mix64(fnv1a(key)));
}

std::optional<std::string> read_entry(const fs::path& path, const std::string& key) {
  // O_NONBLOCK: a named pipe of this name must not block the program.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  const size_t begin = sizeof(Header) + key.size();
  // Checked before memory is taken.
  const off_t length = file.open() ? ::lseek(file.get(), 0, SEEK_END) : -1;
  if (length < static_cast<off_t>(begin) || length > static_cast<off_t>(begin + kMostBytes)) return {};
  std::string bytes;
  if (::lseek(file.get(), 0, SEEK_SET) < 0 || !read_to_end(file.get(), bytes) || bytes.size() < begin) return {};
  Header header{};
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagic || header.key_size != key.size() || header.size != bytes.size() - begin) return {};
  if (bytes.compare(sizeof header, key.size(), key) != 0) return {};
  bytes.erase(0, begin);
  if (checksum(key, bytes) != header.checksum) return {};
  return bytes;
}

void write_entry(const fs::path& folder, const std::string& name, const std::string& key, std::string_view bytes) {
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  // Unique, since several processes and threads may write the same entry at once.
  static std::atomic<unsigned> counter{0};
  const fs::path path = folder / name;
  const fs::path temporary =
      folder / ("." + name + "." + std::to_string(::getpid()) + "." + std::to_string(counter++) + ".tmp");
  Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file.open()) return;
  const Header header{kMagic, key.size(), bytes.size(), checksum(key, bytes)};
  // Not synced: the checksum detects a write torn by a power cut.
  const bool written = write_all(file.get(), &header, sizeof header) && write_all(file.get(), key.data(), key.size()) &&
                       write_all(file.get(), bytes.data(), bytes.size()) && file.close();
  if (!written || ::rename(temporary.c_str(), path.c_str()) != 0) ::unlink(temporary.c_str());
}

std::optional<std::string> known(const Tuning& tuning) {
  std::optional<std::string> way = cached_bytes(tuning.kind, tuning.key);
  if (way && !tuning.works(*way)) way.reset();
  return way;
}

// The least of several runs; below 0 if one fails.
double least_seconds(const Tuning& tuning, const std::string& way) {
  double least = -1;
  for (int run = 0; run < tuning.repeats; ++run) {
    const double seconds = tuning.seconds(way);
    if (seconds < 0) return -1;
    if (least < 0 || seconds < least) least = seconds;
  }
  return least;
}
}  // namespace

std::optional<std::string> cached_bytes(const std::string& kind, const std::string& key) {
  const fs::path location = folder();
  return location.empty() ? std::nullopt : read_entry(location / file_name(kind, key), key);
}

void cache_bytes(const std::string& kind, const std::string& key, std::string_view bytes) noexcept {
  try {
    if (const fs::path location = folder(); !location.empty() && bytes.size() <= kMostBytes)
      write_entry(location, file_name(kind, key), key, bytes);
  } catch (...) {  // no memory for a path: then it is not kept
  }
}

std::string fastest(const Tuning& tuning) {
  if (std::optional<std::string> way = known(tuning)) return *way;
  const std::vector<std::string> ways = tuning.candidates();
  if (ways.size() == 1) return ways[0];
  std::string best, first_working;
  double best_seconds = -1;
  for (const std::string& way : ways) {
    const double seconds = least_seconds(tuning, way);
    if (seconds < 0) continue;
    if (first_working.empty()) first_working = way;
    if (best_seconds < 0 || seconds < 0.98 * best_seconds) best = way, best_seconds = seconds;
  }
  if (best_seconds < 0) return best;
  // Another process may have kept its choice meanwhile.
  if (std::optional<std::string> way = known(tuning)) return *way;
  cache_bytes(tuning.kind, tuning.key, best);
  // Noise would choose otherwise in the next process, and another way may give other bits.
  return known(tuning).value_or(first_working);
}

std::string known_or_first(const Tuning& tuning) {
  if (std::optional<std::string> way = known(tuning)) return *way;
  const std::vector<std::string> ways = tuning.candidates();
  return ways.empty() ? std::string() : ways[0];
}
}  // namespace linnet
