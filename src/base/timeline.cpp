#include "base/timeline.h"
#include <memory>
#include <mutex>
#include <utility>

namespace linnet {
namespace {
constexpr size_t kReserved = 1 << 14;  // spans of a thread before its track grows

// A thread appends only to its own track; the lock is for take(), which may run while other threads work.
struct ThreadTrack : Track {
  std::mutex mutex;
};

struct AllTracks {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadTrack>> tracks;
};
AllTracks& all = *new AllTracks;  // never destroyed: threads may outlive static objects

std::atomic<const void*> current_plan{nullptr};
std::atomic<int64_t> current_node{-1};

// Thread-local: one track for all threads would make them wait.
thread_local struct {
  std::string name = "main";
  std::shared_ptr<ThreadTrack> track;
} t_own;
}  // namespace

std::atomic<bool> Timeline::active_{false};

int64_t Timeline::now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Timeline::name_thread(std::string name) { t_own.name = std::move(name); }

void Timeline::start() {
  take();
  active_.store(true, std::memory_order_relaxed);
}

void Timeline::stop() { active_.store(false, std::memory_order_relaxed); }

void Timeline::record(const Span& span) {
  if (!t_own.track) {
    t_own.track = std::make_shared<ThreadTrack>();
    t_own.track->thread = t_own.name;
    t_own.track->spans.reserve(kReserved);
    const std::lock_guard lock(all.mutex);
    all.tracks.push_back(t_own.track);
  }
  const std::lock_guard lock(t_own.track->mutex);
  t_own.track->spans.push_back(span);
}

void Timeline::set_work(const void* plan, int64_t node) {
  current_plan.store(plan, std::memory_order_relaxed);
  current_node.store(node, std::memory_order_relaxed);
}

void Timeline::record_work(int64_t begin) {
  const void* plan = current_plan.load(std::memory_order_relaxed);
  const int64_t node = current_node.load(std::memory_order_relaxed);
  record({.begin = begin, .end = now(), .name = plan ? nullptr : "work", .plan = plan, .index = node});
}

std::vector<Track> Timeline::take() {
  const std::lock_guard lock(all.mutex);
  std::vector<Track> taken;
  for (const auto& thread : all.tracks) {
    const std::lock_guard track_lock(thread->mutex);
    if (thread->spans.empty()) continue;
    Track track{thread->thread, {}};
    track.spans.reserve(kReserved);
    std::swap(track.spans, thread->spans);
    taken.insert(thread == t_own.track ? taken.begin() : taken.end(), std::move(track));
  }
  // Removes the tracks of threads that have ended.
  std::erase_if(all.tracks, [](const auto& thread) { return thread.use_count() == 1; });
  return taken;
}
}  // namespace linnet
