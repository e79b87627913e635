#include "serving/http/http_server.h"

#include <csignal>
#include <ctime>

#include "base/error.h"
#include "base/log.h"
#include "serving/http/http_session.h"

namespace linnet {

void HttpServer::State::accept() {
  if (accepting || draining || std::ssize(sessions) >= limits.connections) return;
  accepting = true;
  acceptor.async_accept([this](error_code error, tcp::socket socket) {
    accepting = false;
    if (!error) add(std::move(socket));
    if (error == asio::error::no_descriptors) {  // goes on when a connection is closed
      log_warning("a connection was refused: the process has no file descriptors left");
      return;
    }
    accept();
  });
}

void HttpServer::State::add(tcp::socket socket) {
  const auto session = std::make_shared<HttpSession>(*this, std::move(socket));
  sessions.insert(session);
  session->start();
}

void HttpServer::State::remove(const std::shared_ptr<HttpSession>& session) {
  sessions.erase(session);
  accept();
}

// Takes the connections that wait to be accepted, and no more.
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
  reload_signals.cancel(error);
  for (const auto& session : std::set(sessions)) session->drain();
}

HttpServer::HttpServer(HttpHandler& handler, const std::string& host, int port, const HttpLimits& limits)
    : state_(std::make_unique<State>(handler, limits)) {
  error_code error;
  tcp::resolver resolver(state_->io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) fail_user("--host " + host + ": there is no such address");
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const auto check = [&] {
    if (error) fail_user("cannot listen on " + host + ", port " + std::to_string(port) + ": " + error.message());
  };
  state_->acceptor.open(endpoint.protocol(), error), check();
  state_->acceptor.set_option(asio::socket_base::reuse_address(true), error), check();
  state_->acceptor.bind(endpoint, error), check();
  state_->acceptor.listen(asio::socket_base::max_listen_connections, error), check();
  char prefix[20];
  std::snprintf(prefix, sizeof prefix, "%llx-", static_cast<unsigned long long>(std::time(nullptr)));
  state_->id_prefix = prefix;
}

HttpServer::~HttpServer() = default;

int HttpServer::port() const { return state_->acceptor.local_endpoint().port(); }
int64_t HttpServer::connections() const { return std::ssize(state_->sessions); }

void HttpServer::run(const std::function<void()>& reload) {
  State& state = *state_;
  for (const int signal : {SIGINT, SIGTERM}) state.stop_signals.add(signal);
  state.reload_signals.add(SIGHUP);
  state.stop_signals.async_wait([&state](error_code error, int) {
    if (error) return;
    for (const int signal : {SIGINT, SIGTERM}) {  // the next one ends the process
      state.stop_signals.remove(signal);
      std::signal(signal, SIG_DFL);
    }
    log_info("stopping: " + std::to_string(state.sessions.size()) + " connections are open");
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
}

}  // namespace linnet
