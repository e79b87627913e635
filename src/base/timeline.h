// Records what ran when, for profiles; a span belongs to the thread that ran it. The process has one timeline; while it
// is inactive, a recording point costs one load of a flag.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>
#include "base/enum_names.h"

namespace linnet {
// Making and moving data, sharing values with other ranks, or a pass of a pipeline stage (index: micro-batch).
enum class SpanKind : uint8_t { kData, kSharing, kStagePass };
template <> inline constexpr std::array kEnumNames<SpanKind>{"data", "sharing", "stage"};

struct Span {
  int64_t begin = 0, end = 0;  // nanoseconds of the steady clock
  const char* name = nullptr;  // a string literal; null: node `index` of `plan` ran
  const void* plan = nullptr;
  int64_t index = -1;
  SpanKind kind = SpanKind::kData;  // of a span with a name
};

struct Track {
  std::string thread;       // "main", "worker 1", "batches"
  std::vector<Span> spans;  // in the order of their ends
};

class Timeline {
 public:
  static bool is_active() { return active_.load(std::memory_order_relaxed); }
  static void start();
  static void stop();
  // Returns and forgets the spans since start(): a track for each thread that recorded any, the calling thread first.
  static std::vector<Track> take();

  static void record(const Span& span);  // also while inactive: a span may end after stop()
  static int64_t now();
  static void name_thread(std::string name);  // the calling thread's name in the tracks; "main" by default
  // Sets the node that the pool's threads are recorded to work on. There is one for the process: if several plans run
  // at the same time, workers' spans may name the wrong one.
  static void set_work(const void* plan, int64_t node);
  static void record_work(int64_t begin);  // records that the calling thread worked on that node

 private:
  static std::atomic<bool> active_;
};

// Records its lifetime if the timeline is active at both ends.
class HostSpan {
 public:
  explicit HostSpan(const char* name, SpanKind kind = SpanKind::kData, int64_t index = -1)
      : name_(name), kind_(kind), index_(index), begin_(Timeline::is_active() ? Timeline::now() : 0) {}
  ~HostSpan() {
    if (begin_ != 0 && Timeline::is_active())
      Timeline::record({.begin = begin_, .end = Timeline::now(), .name = name_, .index = index_, .kind = kind_});
  }
  HostSpan(const HostSpan&) = delete;

 private:
  const char* const name_;
  const SpanKind kind_;
  const int64_t index_, begin_;
};

inline double now() {  // seconds of the steady clock
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
}  // namespace linnet
