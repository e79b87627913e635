// The fastest of several ways to do the same, timed once and kept on disk (engine/device/disk_cache.h). What a way is, only
// its library knows: here it is bytes.
#pragma once
#include <functional>
#include <string>
#include <vector>

namespace linnet {

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
