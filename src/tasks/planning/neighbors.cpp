#include "tasks/planning/neighbors.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <exception>

#include "base/error.h"
#include "base/log.h"

namespace linnet {
namespace {

[[noreturn]] void work_as_neighbor(int started, FunctionRef<void(Neighbors::Started)> work) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  silence_log();
  try {
    work([&] {
      const char byte = 0;
      if (write(started, &byte, 1) != 1) _exit(1);
    });
  } catch (const std::exception&) {  // the parent meets the same and tells it
  }
  _exit(1);
}

}  // namespace

Neighbors::Neighbors(int count, FunctionRef<void(Started started)> work) {
  for (int i = 0; i < count; ++i) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0) fail_system("cannot make a pipe");
    const pid_t process = fork();
    if (process == 0) work_as_neighbor(ends[1], work);
    close(ends[1]);
    if (process < 0) {
      close(ends[0]);
      fail_system("cannot start a process");
    }
    neighbors_.push_back({process, ends[0]});
  }
}

Neighbors::~Neighbors() {
  for (const Neighbor& neighbor : neighbors_) kill(neighbor.process, SIGKILL);
  for (const Neighbor& neighbor : neighbors_) {
    while (waitpid(neighbor.process, nullptr, 0) < 0 && errno == EINTR) {
    }
    close(neighbor.started);
  }
}

void Neighbors::wait_until_started() const {
  for (const Neighbor& neighbor : neighbors_) {
    char byte = 0;
    ssize_t count = 0;
    do count = read(neighbor.started, &byte, 1);
    while (count < 0 && errno == EINTR);
    if (count == 1) continue;
    errno = 0;
    fail_system("a process that was to train beside this one has ended: is there memory for all of them?");
  }
}

}  // namespace linnet
