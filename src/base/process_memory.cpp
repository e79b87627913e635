#include "base/process_memory.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>
#include <cstdlib>
#include <cstring>
#include "base/descriptor.h"
#include "base/error.h"

namespace linnet {
namespace {

// Reads "Name:   1234 kB" from /proc/self/status. Allocates nothing: the trainer calls it between steps.
uint64_t status_bytes(const char* name) {
  char text[8192];
  Descriptor file(::open("/proc/self/status", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.open() ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (got < 0) fail_errno("cannot read /proc/self/status");
  text[got] = '\0';
  const char* line = std::strstr(text, name);
  if (!line) fail_internal(std::string("/proc/self/status does not name ") + name);
  return std::strtoull(line + std::strlen(name), nullptr, 10) * 1024;
}

}  // namespace

uint64_t resident_bytes() { return status_bytes("\nVmRSS:"); }
uint64_t peak_resident_bytes() { return status_bytes("\nVmHWM:"); }

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
  Descriptor file(::open("/proc/self/stat", O_RDONLY | O_CLOEXEC));
  const ssize_t got = file.open() ? ::read(file.get(), text, sizeof text - 1) : -1;
  if (got < 0) fail_errno("cannot read /proc/self/stat");
  text[got] = '\0';
  // proc(5): after the name in parentheses come fields 3 on; field 22 is the start, in clock ticks since boot.
  const char* field = std::strrchr(text, ')');
  for (int i = 2; field && i < 22; ++i) field = std::strchr(field + 1, ' ');
  if (!field) fail_internal("/proc/self/stat has too few fields");
  const double started = std::strtod(field, nullptr) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  timespec since_boot{};
  ::clock_gettime(CLOCK_BOOTTIME, &since_boot);
  return static_cast<double>(since_boot.tv_sec) + static_cast<double>(since_boot.tv_nsec) * 1e-9 - started;
}

}  // namespace linnet
