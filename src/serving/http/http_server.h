// A single-threaded HTTP/1.1 server with keep-alive, limits and streams. Its handler answers from any thread.
#pragma once
#include <cstdint>
#include "serving/http/http.h"

namespace linnet {
struct HttpLimits {
  uint32_t header_bytes = 16 * 1024;        // beyond: 431
  uint64_t body_bytes = 4 * 1024 * 1024;    // beyond: 413
  double read_seconds = 30;                 // from a request's first byte to its last; beyond: 408
  double idle_seconds = 75;                 // between requests; then the connection is closed
  double request_seconds = 600;             // until a request is answered; beyond: 408, or the stream ends
  double write_seconds = 30;                // in which a client must read some of an answer, or it is disconnected
  uint64_t unsent_bytes = 4 * 1024 * 1024;  // unread bytes of a stream before a slow client is disconnected
  // Most open connections. One more closes the longest idle one; without an idle one it waits for a close, unless its
  // request is urgent (HttpHandler::is_urgent). Of more than `spare` waiting ones the first gets 503.
  int64_t connections = 1024, spare = 32;
};

class HttpServer {
 public:
  // Listens at once; system error if that fails. Port 0 takes any.
  HttpServer(HttpHandler& handler, const std::string& host, int port, const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  bool is_loopback() const;     // only reachable from this machine
  int64_t connections() const;  // open now; call in the server's thread

  // Serves until SIGTERM or SIGINT; then accepts no connections, answers all received requests, and returns. A second
  // signal ends the process at once. SIGHUP calls `reload`.
  void run(const std::function<void()>& reload);

  struct State;

 private:
  const std::unique_ptr<State> state_;
};
}  // namespace linnet
