// An HTTP server, and HTTP as its request handlers see it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace linnet {
using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method, path;  // "POST", "/v1/models"; without the query
  std::string host;          // of a target that names one (GET http://localhost:8080/health); else ""
  std::string client;        // its address
  HttpHeaders headers;       // names in lower case
  std::string body;

  std::string_view header(std::string_view name) const;  // by the header's name in lower case; "" without it
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};
};

// Why an answer is no longer wanted.
enum class HttpAbort { kClientGone, kTimeout };

// Takes the answer of one request: respond() once, or begin_stream(), write() any number of times, end_stream(). Safe
// from any thread; no-op after the end or once the client has gone. Destroyed unanswered, it answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const std::string& id() const = 0;  // of the request, for logs and the answer's header X-Request-Id
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end_stream() = 0;
  // Adds to the request's log line; call it before the end of the answer.
  virtual void note(std::string text) = 0;
  // Calls `abort` at most once, in the server's thread, if the client leaves before the answer's end or the request
  // takes longer than HttpLimits::request_seconds; at once if the request is over.
  virtual void on_abort(std::function<void(HttpAbort)> abort) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Called before the body is read, so that refusing costs nothing.
  virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  virtual bool is_urgent(const HttpRequest& head) = 0;  // whether it is answered even with too many connections
  // In the server's thread: must not wait.
  virtual void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to a request that the server itself refuses, such as a too large one; for logs and the error format.
  virtual HttpResponse error(int status, const std::string& message) = 0;
  // For logs, last call for a request. `seconds` since its first byte; status 499 if the client left.
  virtual void finished(
      const HttpRequest& request, const std::string& id, int status, double seconds, const std::string& note) = 0;
};

const char* http_reason(int status);  // "Not Found"

// A refused request: an HTTP status and a body as OpenAI's clients expect: {"error": {"message": "...", "type":
// "invalid_request_error", "param": "prompt", "code": null}}
class ApiError : public std::runtime_error {
 public:
  // `param`: the wrong key of the body; `code`: for programs. "" for none.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status(status), param(std::move(param)), code(std::move(code)) {}

  const int status;
  const std::string param, code;
};

HttpResponse error_response(const ApiError& error);
std::string error_body(const ApiError& error);

HttpResponse try_page();  // the page to try models on, served at "/"

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

// A single-threaded HTTP/1.1 server with keep-alive, limits and streams. Its handler answers from any thread.
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
