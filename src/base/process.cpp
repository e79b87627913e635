#include "base/process.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <optional>
#include "base/fail.h"
#include "base/files.h"

namespace linnet {
namespace {
// Reads at most N - 1 bytes. Allocates nothing: the trainer calls it between steps.
template <size_t N> void read_proc(const char* path, char (&text)[N]) {
  Descriptor file(::open(path, O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.open() ? ::read(file.get(), text, N - 1) : -1;
  if (got < 0) fail_errno(std::string("cannot read ") + path);
  text[got] = '\0';
}

uint64_t status_bytes(const char* name) {  // "Name:   1234 kB"
  char text[8192];
  read_proc("/proc/self/status", text);
  const char* line = std::strstr(text, name);
  if (!line) fail_internal("/proc/self/status does not name ", name);
  return std::strtoull(line + std::strlen(name), nullptr, 10) * 1024;
}

// Empty for "max" and -1, which mean no limit.
std::optional<double> read_limit(const std::string& path) {
  std::ifstream file(path);
  double value = 0;
  return file >> value && value >= 0 ? std::optional(value) : std::nullopt;
}

// Calls visit(folder, version) for the process's group of a controller and for all groups above. A line of `membership`
// is ID:CONTROLLERS:PATH, without controllers in version 2. A container may not see its path; its own group is then the
// root.
template <class Visit>
void visit_groups(const std::string& root, const std::string& membership, const std::string& controller, Visit visit) {
  std::ifstream file(membership);
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = ',' + line.substr(first + 1, second - first - 1) + ',';
    const bool is_v2 = controllers == ",,";
    if (!is_v2 && controllers.find(',' + controller + ',') == std::string::npos) continue;
    const std::string base = is_v2 ? root : root + '/' + controller;
    for (std::string path = line.substr(second + 1);; path.resize(path.rfind('/'))) {
      while (path.ends_with('/')) path.pop_back();
      visit(base + path, is_v2 ? 2 : 1);
      if (path.empty()) break;
    }
  }
}

// Bytes of file pages that a group has in memory.
double file_pages(const std::string& folder, int version) {
  std::ifstream file(folder + "/memory.stat");
  std::string key;
  double value = 0, pages = 0;
  const std::string prefix = version == 2 ? "" : "total_";
  while (file >> key >> value)
    if (key == prefix + "inactive_file" || key == prefix + "active_file") pages += value;
  return pages;
}

std::atomic<uint64_t> most_bytes{UINT64_MAX}, checks{0};
std::atomic<int> forks{0};  // from the process of the first ForkGuard to this one
std::atomic<bool> requested{false}, keeps_handlers{false};
std::atomic<const char*> announcement{nullptr};
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<const char*>::is_always_lock_free,
    "a signal handler may only touch lock-free atomics");

void request(int signal) {
  if (requested.exchange(true)) end_by_signal(signal);
}

void announce(int signal) {
  const char* text = announcement.load();
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  end_by_signal(signal);
}

void install(void (*handler)(int), void (*of_pipe)(int)) {
  if (keeps_handlers) return;
  ::signal(SIGPIPE, of_pipe);
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a checkpoint being written goes on
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1})
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
}
}  // namespace

uint64_t resident_bytes() { return status_bytes("\nVmRSS:"); }
uint64_t peak_resident_bytes() { return status_bytes("\nVmHWM:"); }
uint64_t own_bytes() { return status_bytes("\nRssAnon:"); }

uint64_t memory_left() {
  std::ifstream meminfo("/proc/meminfo");
  std::string key, unit;
  uint64_t value = 0, left = cgroup_memory_left();
  while (meminfo >> key >> value >> unit)
    if (key == "MemAvailable:") left = std::min(left, value * 1024);
  return left;
}

MemoryLimit::MemoryLimit(uint64_t bytes) { most_bytes = bytes; }
MemoryLimit::~MemoryLimit() { most_bytes = UINT64_MAX; }

void MemoryLimit::check() {
  if (++checks % 16 == 0 && own_bytes() > most_bytes)
    fail_user("reading the data takes more than the ", most_bytes / 1000000,
        " MB of --memory or of this machine; less data takes less, and a file of tokens (.bin) hardly any");
}

std::string memory_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "; the address space is limited to " + std::to_string(limit.rlim_cur >> 20) + " MiB (ulimit -v)";
}

void give_back_pages(void* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), at = reinterpret_cast<uintptr_t>(begin);
  const uintptr_t first = (at + page - 1) / page * page, end = (at + bytes) / page * page;
  if (first < end) ::madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

double process_seconds() {
  char text[4096];
  read_proc("/proc/self/stat", text);
  // proc(5): fields 3 and on follow the name in parentheses; field 22 is the start, in clock ticks since boot.
  const char* field = std::strrchr(text, ')');
  for (int i = 2; field && i < 22; ++i) field = std::strchr(field + 1, ' ');
  if (!field) fail_internal("/proc/self/stat has too few fields");
  const double started = std::strtod(field, nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  timespec since_boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) * 1e-9 - started;
}

uint64_t cgroup_memory_left(const std::string& root, const std::string& membership) {
  uint64_t left = UINT64_MAX;
  visit_groups(root, membership, "memory", [&](const std::string& folder, int version) {
    const char* limit_name = version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    const char* used_name = version == 2 ? "/memory.current" : "/memory.usage_in_bytes";
    const std::optional<double> limit = read_limit(folder + limit_name), used = read_limit(folder + used_name);
    // Version 1 writes a number near 2^63 for "no limit".
    if (!limit || !used || *limit > 1e18) return;
    left = std::min(left, static_cast<uint64_t>(std::max(0.0, *limit - *used + file_pages(folder, version))));
  });
  return left;
}

double cgroup_processors(const std::string& root, const std::string& membership) {
  double processors = 1e9;
  visit_groups(root, membership, "cpu", [&](const std::string& folder, int version) {
    std::optional<double> quota, period;
    if (version == 2) {  // "QUOTA PERIOD" in one file
      std::ifstream file(folder + "/cpu.max");
      double q = 0, p = 0;
      if (file >> q >> p) quota = q, period = p;
    } else {
      quota = read_limit(folder + "/cpu.cfs_quota_us"), period = read_limit(folder + "/cpu.cfs_period_us");
    }
    if (quota && period && *quota > 0 && *period > 0) processors = std::min(processors, *quota / *period);
  });
  return processors;
}

bool is_ignored(int signal) {
  struct sigaction present {};
  return ::sigaction(signal, nullptr, &present) == 0 && present.sa_handler == SIG_IGN;
}

void end_by_signal(int signal) {
  ::signal(signal, SIG_DFL);
  sigset_t set;
  sigemptyset(&set), sigaddset(&set, signal);
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);  // a handler runs with its signal blocked
  ::raise(signal);                                // so that the parent sees which signal it was
  ::_exit(128 + signal);                          // the first process of a container outlives a signal's default action
}

void keep_signal_handlers() { keeps_handlers = true; }

void announce_stop(const char* text) {
  announcement = text;
  install(announce, SIG_IGN);
}

void catch_stop_signals() { install(request, SIG_IGN); }

void default_stop_signals() { install(SIG_DFL, SIG_DFL); }

bool stop_requested() { return requested.load(std::memory_order_relaxed); }

ForkGuard::ForkGuard() : forks_(forks) {
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, [] { ++forks; });
}
bool ForkGuard::is_child() const { return forks.load(std::memory_order_relaxed) != forks_; }

ModuleSearch search_module(const char* name, const char* variable) {
  std::vector<std::filesystem::path> locations;
  if (const char* given = std::getenv(variable)) {
    locations = {given};
  } else {
    std::error_code ignored;
    const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    locations = {folder / name, folder / "../lib/linnet" / name};
  }
  ModuleSearch search;
  for (const auto& location : locations) {
    if (std::filesystem::exists(location)) return {location, search.looked};
    search.looked += (search.looked.empty() ? "" : ", ") + location.lexically_normal().string();
  }
  return search;
}

void* load_module(const std::filesystem::path& file, const std::string& what, const char* opener, int visibility) {
  void* module = dlopen(file.c_str(), RTLD_NOW | visibility);
  if (!module) fail_user("cannot load the ", what, " module: ", dlerror());
  if (!dlsym(module, opener)) fail_user(file.string(), " is not Linnet's ", what, " module");
  return module;
}
}  // namespace linnet
