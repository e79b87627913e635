#include "base/lost_pages.h"
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>
#include <array>
#include <atomic>
#include <map>
#include <mutex>
#include "base/error.h"

namespace linnet {
namespace {

// The handler reads these, so they are lock-free and nothing in them is ever freed. A free entry has begin 0.
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

std::mutex mutex;                              // of what follows, and of those who write to `ranges`
std::map<const void*, std::string>& paths() {  // by mapping
  static auto* const paths = new std::map<const void*, std::string>();  // never freed: files may be given back at exit
  return *paths;
}
std::string& lost_path() {  // of a mapping that was given back
  static auto* const path = new std::string();
  return *path;
}

uintptr_t address_of(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

// Every thread that meets the page may replace it: zeros replace zeros.
void replace_page(int, siginfo_t* info, void*) {
  const uintptr_t at = address_of(info->si_addr);
  bool is_watched = false;
  for (size_t i = 0; i < used_ranges.load(std::memory_order_acquire); ++i) {
    Range& range = ranges[i];
    const uintptr_t begin = range.begin.load(std::memory_order_acquire);
    if (begin == 0 || at < begin || at >= range.end.load(std::memory_order_relaxed)) continue;
    is_watched = true;
    if (!range.lost.exchange(true)) lost_count.fetch_add(1);
  }
  void* const page = reinterpret_cast<void*>(at / page_size * page_size);
  constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
  if (is_watched && ::mmap(page, page_size, PROT_READ | PROT_WRITE, kFlags, -1, 0) != MAP_FAILED) return;
  ::signal(SIGBUS, SIG_DFL);  // the access is repeated, and ends the process
}

// Calls visit(range) for the ranges of a mapping; null: of all.
template <class Visit>
void visit_ranges(const void* mapping, const Visit& visit) {
  for (size_t i = 0; i < used_ranges.load(std::memory_order_acquire); ++i) {
    Range& range = ranges[i];
    if (range.begin.load(std::memory_order_acquire) == 0) continue;
    if (!mapping || range.mapping == address_of(mapping)) visit(range);
  }
}

[[noreturn]] void fail_lost(const std::string& path) {
  fail_user("'" + path + "' was cut short, or could not be read, while it was in use");
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
  paths()[mapping] = path;
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
    if (range.lost) lost_path() = paths()[mapping];
    range.begin.store(0, std::memory_order_release);
  });
  paths().erase(mapping);
}

void check_lost_pages(const void* mapping) {
  if (lost_count == 0) return;
  bool lost = false;
  visit_ranges(mapping, [&](const Range& range) { lost = lost || range.lost; });
  if (!lost) return;
  const std::lock_guard lock(mutex);
  fail_lost(paths()[mapping]);
}

uint64_t count_lost_pages() { return lost_count; }

void check_lost_pages() {
  if (lost_count == 0) return;
  const std::lock_guard lock(mutex);
  std::string path = lost_path();
  visit_ranges(nullptr, [&](const Range& range) {
    if (range.lost) path = paths()[reinterpret_cast<const void*>(range.mapping.load())];
  });
  fail_lost(path);
}

}  // namespace linnet
