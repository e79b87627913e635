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

thread_local bool may_stop = false;

void end_by(int signal) {
  ::signal(signal, SIG_DFL);
  ::raise(signal);  // delivered when the handler returns, so that the parent sees which signal it was
}

void request(int signal) {
  if (requested.exchange(true)) end_by(signal);
}

void announce(int signal) {
  const char* text = announcement.load();
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, std::strlen(text));
  end_by(signal);
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

StopPoints::StopPoints() { may_stop = true; }
StopPoints::~StopPoints() { may_stop = false; }

void stop_point() {
  if (may_stop && stop_requested()) throw Stopped{};
}

void pass_last_stop_point() { may_stop = false; }

}  // namespace linnet
