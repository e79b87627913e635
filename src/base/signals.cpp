#include "base/signals.h"

#include <signal.h>

#include <atomic>

namespace linnet {
namespace {

std::atomic<bool> requested{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch lock-free atomics");

void handle(int signal) {
  if (!requested.exchange(true)) return;
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when this handler returns, so that the parent sees which signal it was
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = handle;
  action.sa_flags = SA_RESTART;  // a checkpoint being written goes on
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) ::sigaction(signal, &action, nullptr);
}

bool stop_requested() { return requested.load(std::memory_order_relaxed); }

}  // namespace linnet
