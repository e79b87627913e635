#include "base/signals.h"
#include <signal.h>
#include <unistd.h>
#include <atomic>
#include <cstring>
#include <initializer_list>

namespace linnet {
namespace {
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

void install(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // a checkpoint being written goes on
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    struct sigaction present {};
    ::sigaction(signal, nullptr, &present);
    if (signal != SIGHUP || present.sa_handler != SIG_IGN) ::sigaction(signal, &action, nullptr);
  }
}
}  // namespace

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
  if (keeps_handlers) return;
  ::signal(SIGPIPE, SIG_IGN);
  announcement = text;
  install(announce);
}

void catch_stop_signals() {
  if (keeps_handlers) return;
  ::signal(SIGPIPE, SIG_IGN);
  install(request);
}

void default_stop_signals() {
  if (keeps_handlers) return;
  ::signal(SIGPIPE, SIG_DFL);
  install(SIG_DFL);
}

bool stop_requested() { return requested.load(std::memory_order_relaxed); }
}  // namespace linnet
