#include "engine/device/autotune.h"

#include <cstring>
#include <optional>

#include "base/hash.h"
#include "engine/device/disk_cache.h"

namespace linnet {
namespace {

// The way with a sum of it, so that a file that was changed is not given to a library as one of its structures.
std::string sealed(const std::string& way) {
  const uint64_t sum = fnv1a(way);
  std::string bytes(sizeof sum, '\0');
  std::memcpy(bytes.data(), &sum, sizeof sum);
  return bytes + way;
}

std::optional<std::string> opened(const std::string& bytes) {
  uint64_t sum = 0;
  if (bytes.size() < sizeof sum) return std::nullopt;
  std::memcpy(&sum, bytes.data(), sizeof sum);
  std::string way = bytes.substr(sizeof sum);
  if (fnv1a(way) != sum) return std::nullopt;
  return way;
}

std::optional<std::string> known(const Tuning& tuning) {
  const std::optional<std::string> bytes = cached_bytes(tuning.kind, tuning.key);
  if (!bytes) return std::nullopt;
  std::optional<std::string> way = opened(*bytes);
  if (way && !tuning.works(*way)) way.reset();
  return way;
}

// The least of several runs; below 0 when one fails.
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
  cache_bytes(tuning.kind, tuning.key, sealed(best));
  // Noise would choose otherwise in the next process, and another way may give other bits.
  return known(tuning).value_or(first_working);
}

std::string known_or_first(const Tuning& tuning) {
  if (std::optional<std::string> way = known(tuning)) return *way;
  const std::vector<std::string> ways = tuning.candidates();
  return ways.empty() ? std::string() : ways[0];
}

}  // namespace linnet
