#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/descriptor.h"
#include "base/error.h"
#include "base/files.h"

namespace linnet {
namespace {

std::string read_holder(int descriptor) {
  char text[32] = {};
  const ssize_t got = ::pread(descriptor, text, sizeof text - 1, 0);
  const size_t digits = got > 0 ? std::strspn(text, "0123456789") : 0;
  return std::string(text, digits);
}

// A process that was killed a moment ago keeps its lock until the system has taken it apart, and so does a child it had
// forked. When the holder written down is gone, the lock is tried again for half a second.
bool lock_patiently(int descriptor) {
  constexpr int kAttempts = 50;
  for (int attempt = 0;; ++attempt) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return false;
    const std::string holder = read_holder(descriptor);
    const bool gone = !holder.empty() && ::kill(std::atoi(holder.c_str()), 0) != 0 && errno == ESRCH;
    errno = EWOULDBLOCK;
    if (!gone || attempt == kAttempts) return false;
    const timespec pause{0, 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!file.open()) fail_system("cannot write to the run folder '" + folder + "'");
  if (!lock_patiently(file.get())) {
    if (errno != EWOULDBLOCK) fail_system("cannot lock the run folder '" + folder + "'");
    const std::string holder = read_holder(file.get());
    fail_user("run folder '" + folder + "' is in use by " + (holder.empty() ? "another process" : "process " + holder));
  }
  const std::string self = std::to_string(::getpid()) + "\n";
  if (::ftruncate(file.get(), 0) != 0 || !write_all(file.get(), self.data(), self.size()))
    fail_system("cannot write to the run folder '" + folder + "'");
  descriptor_ = file.release();
}

// The file stays: removing it would let a third process lock a new file while a second one waits for the old.
FolderLock::~FolderLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

}  // namespace linnet
