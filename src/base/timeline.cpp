#include "base/timeline.h"
#include <chrono>
#include <memory>
#include <mutex>
#include <utility>

namespace linnet {
namespace {

constexpr size_t kReserved = 1 << 14;  // spans of a thread before its track grows

// A thread appends to its own track only; the lock is for take(), which may come while other threads still work.
struct ThreadTrack {
  std::mutex mutex;
  Track track;
};

struct AllTracks {
  std::mutex mutex;
  std::vector<std::shared_ptr<ThreadTrack>> tracks;
};

// Never destroyed: threads may outlive static objects.
AllTracks& all_tracks() {
  static auto* all = new AllTracks;
  return *all;
}

std::atomic<const void*> current_plan{nullptr};
std::atomic<int64_t> current_node{-1};

// Where the running thread records. Any code may record, so the track is not handed to it; a track for all threads
// would make them wait for each other.
struct OwnThread {
  std::string name = "main";
  std::shared_ptr<ThreadTrack> track;
};
thread_local OwnThread t_own;

ThreadTrack& own_track() {
  if (!t_own.track) {
    t_own.track = std::make_shared<ThreadTrack>();
    t_own.track->track.thread = t_own.name;
    t_own.track->track.spans.reserve(kReserved);
    const std::lock_guard lock(all_tracks().mutex);
    all_tracks().tracks.push_back(t_own.track);
  }
  return *t_own.track;
}

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
  ThreadTrack& own = own_track();
  const std::lock_guard lock(own.mutex);
  own.track.spans.push_back(span);
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
  const ThreadTrack* caller = t_own.track.get();
  const std::lock_guard lock(all_tracks().mutex);
  std::vector<Track> taken;
  for (const auto& thread : all_tracks().tracks) {
    const std::lock_guard track_lock(thread->mutex);
    if (thread->track.spans.empty()) continue;
    Track track{thread->track.thread, {}};
    track.spans.reserve(kReserved);
    std::swap(track.spans, thread->track.spans);
    taken.insert(thread.get() == caller ? taken.begin() : taken.end(), std::move(track));
  }
  // Tracks of threads that have ended.
  std::erase_if(all_tracks().tracks, [](const auto& thread) { return thread.use_count() == 1; });
  return taken;
}

}  // namespace linnet
