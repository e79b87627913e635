#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include "base/fail.h"
#include "base/files.h"

namespace linnet {
namespace {
// The signal handler reads these, so they are lock-free and never freed. A free entry has begin 0.
struct Range {
  std::atomic<uintptr_t> begin{0}, end{0}, mapping{0};
  std::atomic<bool> lost{false};
};
constexpr size_t kMostRanges = 4096;
std::array<Range, kMostRanges> ranges;
std::atomic<size_t> used_ranges{0};  // entries behind this one were never used
std::atomic<uint64_t> lost_count{0};
uintptr_t page_size = 4096;
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<uint64_t>::is_always_lock_free,
    "a signal handler may only touch lock-free atomics");

std::mutex mutex;  // of what follows, and of those who write to `ranges`
struct Paths {
  std::map<const void*, std::string> of;  // by mapping
  std::string lost;                       // of a mapping that was given back
};
Paths& paths() {
  static auto* const paths = new Paths();  // never freed: files may be given back at exit
  return *paths;
}

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Calls visit(range) for the ranges of a mapping, or for all if it is null.
template <class Visit> void visit_ranges(const void* mapping, const Visit& visit) {
  for (size_t i = 0; i < used_ranges.load(std::memory_order_acquire); ++i) {
    Range& range = ranges[i];
    if (range.begin.load(std::memory_order_acquire) == 0) continue;
    if (!mapping || range.mapping == address_of(mapping)) visit(range);
  }
}

// Several threads may replace the same page: zeros replace zeros.
void replace_page(int, siginfo_t* info, void*) {
  const uintptr_t at = address_of(info->si_addr);
  bool is_watched = false;
  visit_ranges(nullptr, [&](Range& range) {
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || at < begin || at >= range.end.load(std::memory_order_relaxed)) return;
    is_watched = true;
    if (!range.lost.exchange(true)) lost_count.fetch_add(1);
  });
  void* const page = reinterpret_cast<void*>(at / page_size * page_size);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (is_watched && ::mmap(page, page_size, PROT_READ | PROT_WRITE, kFlags, -1, 0) != MAP_FAILED) return;
  ::signal(SIGBUS, SIG_DFL);  // the access is repeated, and ends the process
}
}  // namespace

void catch_lost_pages() {
  page_size = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = replace_page;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, nullptr);
}

void watch_pages(const std::string& path, const void* mapping, const void* begin, size_t bytes) {
  if (bytes == 0) return;
  const std::lock_guard lock(mutex);
  paths().of[mapping] = path;
  for (size_t i = 0; i < kMostRanges; ++i) {
    Range& range = ranges[i];
    if (range.begin.load(std::memory_order_relaxed) != 0) continue;
    range.mapping = address_of(mapping);
    range.lost = false;
    range.end = (address_of(begin) + bytes + page_size - 1) / page_size * page_size;
    range.begin.store(address_of(begin), std::memory_order_release);
    if (i == used_ranges) used_ranges.store(i + 1, std::memory_order_release);
    return;
  }
}

void unwatch_pages(const void* mapping) {
  if (!mapping) return;
  const std::lock_guard lock(mutex);
  visit_ranges(mapping, [&](Range& range) {
    if (range.lost) paths().lost = paths().of[mapping];
    range.begin.store(0, std::memory_order_release);
  });
  paths().of.erase(mapping);
}

void check_lost_pages(const void* mapping) {
  if (lost_count == 0) return;
  const std::lock_guard lock(mutex);
  std::string path = mapping ? "" : paths().lost;
  visit_ranges(mapping, [&](const Range& range) {
    if (range.lost) path = paths().of[reinterpret_cast<const void*>(range.mapping.load())];
  });
  if (!path.empty()) fail_user("'", path, "' was cut short, or could not be read, while it was in use");
}

uint64_t count_lost_pages() { return lost_count; }
}  // namespace linnet
