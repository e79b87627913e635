#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>
#include <atomic>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <ctime>
#include "base/fail.h"
#include "base/log.h"
#include "base/process.h"
#include "serving/http/http_session.h"

namespace linnet {
namespace {
std::atomic<int> stop_pipe{-1};  // the first signal writes to it for the server's thread
std::atomic<bool> stop_requested_once{false};

void request_stop(int signal) {
  if (stop_requested_once.exchange(true)) end_by_signal(signal);
  const int kept = errno;
  [[maybe_unused]] const ssize_t ignored = ::write(stop_pipe, "", 1);
  errno = kept;
}

// Allows a socket for each connection, if the system permits.
void raise_descriptor_limit(int64_t connections) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, std::max(limit.rlim_cur, static_cast<rlim_t>(connections) + 256));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}
}  // namespace

void HttpServer::State::accept() {
  if (accepting || draining) return;
  accepting = true;
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    accepting = false;
    if (!error) add(std::move(socket));
    if (!error || error == asio::error::connection_aborted || (error == asio::error::no_descriptors && close_idle()))
      return accept();
    if (draining) return;
    // Short of descriptors or memory: continues when a connection is closed, and otherwise retries.
    log_warning("connections have to wait: " + error.message());
    retry.expires_after(std::chrono::seconds(1));
    retry.async_wait([this](error_code cancelled) {
      if (!cancelled) accept();
    });
  });
}

void HttpServer::State::add(tcp::socket socket) {
  const auto session = std::make_shared<HttpSession>(*this, std::move(socket));
  if (std::ssize(sessions) - std::ssize(spares) >= limits.connections && !close_idle()) {
    session->make_spare();
    spares.push_back(session);
    if (std::ssize(spares) > limits.spare) {
      const auto first = spares.front();
      spares.pop_front();
      first->turn_away();
    }
  }
  sessions.insert(session);
  session->start();
}

// Closes the connection that has been idle longest; false if all have a request.
bool HttpServer::State::close_idle() {
  const std::shared_ptr<HttpSession>* longest = nullptr;
  for (const auto& session : sessions)
    if (session->is_idle() && (!longest || session->idle_since() < (*longest)->idle_since())) longest = &session;
  if (!longest) return false;
  std::shared_ptr(*longest)->close();
  return true;
}

void HttpServer::State::remove(const std::shared_ptr<HttpSession>& session) {
  sessions.erase(session);
  std::erase(spares, session);
  if (!spares.empty() && std::ssize(sessions) - std::ssize(spares) < limits.connections) {
    const auto next = spares.front();
    spares.pop_front();
    next->admit();
  }
  accept();
}

// Accepts the waiting connections, and then no more.
void HttpServer::State::drain() {
  draining = true;
  error_code error;
  acceptor.non_blocking(true, error);
  for (;;) {
    tcp::socket socket(io);
    acceptor.accept(socket, error);
    if (error) break;
    add(std::move(socket));
  }
  acceptor.close(error);
  retry.cancel();
  reload_signals.cancel(error);
  for (const auto& session : std::set(sessions)) session->drain();
}

HttpServer::HttpServer(HttpHandler& handler, const std::string& host, int port, const HttpLimits& limits) try
    : state_(std::make_unique<State>(handler, limits)) {
  raise_descriptor_limit(limits.connections + limits.spare);
  error_code error;
  tcp::resolver resolver(state_->io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty() || host.empty()) fail_user("--host ", host, ": there is no such address");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto check = [&] {
    if (error) fail_user("cannot listen on ", host, ", port ", port, ": ", error.message());
  };
  state_->acceptor.open(endpoint.protocol(), error), check();
  state_->acceptor.set_option(asio::socket_base::reuse_address(true), error), check();
  state_->acceptor.bind(endpoint, error), check();
  state_->acceptor.listen(asio::socket_base::max_listen_connections, error), check();
  state_->id_prefix = fmt::format("{:x}-", std::time(nullptr));
} catch (const boost::system::system_error& error) {  // no descriptors are left
  fail_system(std::string("cannot serve: ") + error.what());
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }
bool HttpServer::is_loopback() const { return state_->acceptor.local_endpoint().address().is_loopback(); }
int64_t HttpServer::connections() const { return std::ssize(state_->sessions); }

void HttpServer::run(const std::function<void()>& reload) {
  State& state = *state_;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) fail_errno("cannot make a pipe for signals");
  asio::posix::stream_descriptor stop(state.io, ends[0]);
  stop_pipe = ends[1], stop_requested_once = false;
  struct sigaction action {};
  action.sa_handler = request_stop;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGINT, SIGTERM})
    if (!is_ignored(signal)) ::sigaction(signal, &action, nullptr);
  state.reload_signals.add(SIGHUP);
  stop.async_wait(asio::posix::stream_descriptor::wait_read, [&state](error_code) {
    log_info("stopping: ", state.sessions.size(), " connections are open");
    state.drain();
  });
  const std::function<void()> wait = [&] {
    state.reload_signals.async_wait([&](error_code error, int) {
      if (error) return;
      reload();
      wait();
    });
  };
  wait();
  state.accept();
  state.io.run();
  ::close(ends[1]);
}
}  // namespace linnet
