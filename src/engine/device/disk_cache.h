// What was expensive to find out and is the same on the next run: compiled kernels, the fastest of several algorithms.
// Files in the folder LINNET_CACHE, or else XDG_CACHE_HOME/linnet, or else ~/.cache/linnet.
//
// A cache may lose everything at any time and costs only time then: nothing here fails. A file that cannot be read, is
// cut short or was made for another key counts as none; a disk that is full or read-only keeps nothing.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {

// The bytes kept under `key`, which names all that they depend on (versions, the device, the operation).
// `kind`: letters, digits and '_', the beginning of the file's name.
std::optional<std::string> cached_bytes(const std::string& kind, const std::string& key);
// Replaces what was kept under `key`, in one step: other processes see the old bytes or the new.
void cache_bytes(const std::string& kind, const std::string& key, std::string_view bytes) noexcept;

// The fastest of several ways to do the same, timed once and kept on disk (engine/device/disk_cache.h). What a way is,
// only its library knows: here it is bytes.

struct Tuning {
  std::string kind;  // of the file in the cache
  std::string key;   // all that the choice depends on: device, library's version, the whole problem
  std::function<std::vector<std::string>()> candidates;   // the library's own order, best guess first
  std::function<bool(const std::string& way)> works;      // whether a way that was kept is one still
  std::function<double(const std::string& way)> seconds;  // one run; below 0: it failed
  int repeats = 3;                                        // runs of each; the fastest counts
};

// The kept way, or else the fastest candidate, which is then kept. A cache that is corrupt or of another time counts as
// none. A later candidate must be faster by 2 percent, so that noise does not move the choice. Where nothing can be
// kept, the first candidate that works, so that every process chooses the same. Empty when there is no candidate that
// works. With a single candidate nothing is timed.
std::string fastest(const Tuning& tuning);

// As fastest(), without timing or keeping: what was kept, or else the first candidate.
std::string known_or_first(const Tuning& tuning);

}  // namespace linnet
