// An HTTP/1.1 server on one thread. It keeps connections alive, reads requests within limits, gives them to a handler
// and writes the answers, whole or in chunks as they come. The handler answers from any thread.
#pragma once
#include <cstdint>
#include "serving/http/http.h"

namespace linnet {

struct HttpLimits {
  uint32_t header_bytes = 16 * 1024;        // beyond: 431
  uint64_t body_bytes = 4 * 1024 * 1024;    // beyond: 413
  double read_seconds = 30;                 // of a request, from its first byte to its last; beyond: 408
  double idle_seconds = 75;                 // of a connection between requests; then it is closed
  double request_seconds = 600;             // until a request is answered; beyond: 408, or the stream ends
  double write_seconds = 30;                // in which a client must take some of an answer, or it is cut off
  uint64_t unsent_bytes = 4 * 1024 * 1024;  // of a stream that a client is slow to take, before it is cut off
  // Open at once. One more closes the one that is idle for longest. Where none is, it waits until one is closed, but
  // for requests that are urgent (HttpHandler::is_urgent). Of more than `spare` that wait the first gets 503.
  int64_t connections = 1024, spare = 32;
};

class HttpServer {
 public:
  // Listens at once: system error for an address that cannot be listened on. Port 0 takes any.
  HttpServer(HttpHandler& handler, const std::string& host, int port, const HttpLimits& limits);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  bool is_loopback() const;     // only this machine reaches it
  int64_t connections() const;  // open now; of the server's thread

  // Serves until SIGTERM or SIGINT; then takes no connection more, answers every request that has come, and returns. A
  // second signal ends the process at once, whatever this thread does. SIGHUP calls `reload`.
  void run(const std::function<void()>& reload);

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

}  // namespace linnet
