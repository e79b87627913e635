// Expensive results that stay valid for later runs: compiled kernels, the fastest of several algorithms. Files in the
// folder LINNET_CACHE, else XDG_CACHE_HOME/linnet, else ~/.cache/linnet. Losing them costs only time, so nothing here
// fails: an unreadable or damaged file, or one for another key, counts as none; a full or read-only disk keeps nothing.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace linnet {
// The bytes kept under `key`, which names all that they depend on (versions, the device, the operation). `kind`:
// letters, digits and '_', begins the file's name.
std::optional<std::string> cached_bytes(const std::string& kind, const std::string& key);
// Replaces the bytes under `key` atomically, also for other processes.
void cache_bytes(const std::string& kind, const std::string& key, std::string_view bytes) noexcept;

// The fastest of several ways to do the same, timed once and kept on disk. A way is opaque bytes.

struct Tuning {
  std::string kind;  // of the file in the cache
  std::string key;   // all that the choice depends on: device, library's version, the whole problem
  std::function<std::vector<std::string>()> candidates;   // the library's own order, best guess first
  std::function<bool(const std::string& way)> works;      // whether a way that was kept is one still
  std::function<double(const std::string& way)> seconds;  // one run; below 0: it failed
  int repeats = 3;                                        // runs of each; the fastest counts
};

// The kept way, or else the fastest candidate, which is then kept. A corrupt or outdated cache counts as none. A later
// candidate must be 2 percent faster, so that noise does not decide. If nothing can be kept, the first that works, so
// that all processes agree. Empty if no candidate works. A single candidate is not timed.
std::string fastest(const Tuning& tuning);

// As fastest(), without timing or keeping: the kept way, or else the first candidate.
std::string known_or_first(const Tuning& tuning);
}  // namespace linnet
