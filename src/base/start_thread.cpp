#include "base/thread_pool.h"

#include <sys/resource.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/process_memory.h"

namespace linnet {
namespace {

std::string process_limit() {
  struct rlimit limit {};
  if (::getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return "";
  return "; this user may have " + std::to_string(limit.rlim_cur) + " processes and threads (ulimit -u)";
}

}  // namespace

std::thread start_thread(std::function<void()> work) {
  try {
    return std::thread(std::move(work));
  } catch (const std::system_error& error) {
    errno = 0;
    fail_system("cannot start a thread: " + error.code().message() + process_limit() + memory_limit() +
                "; --threads 1 needs fewest");
  }
}

}  // namespace linnet
