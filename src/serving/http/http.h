// What the handler of requests sees of HTTP: requests as they came, and where their answers go. Sockets and the parser
// are behind it, in http_server.cpp alone.
#pragma once
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
  std::string method, path;  // "POST", "/v1/models"; the query is left out
  std::string host;          // of a target that names one (GET http://localhost:8080/health); else ""
  std::string client;        // the address that it comes from
  HttpHeaders headers;       // names in lower case
  std::string body;

  // The value of a header by its name in lower case; "" if there is none.
  std::string_view header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string type = "application/json";
  std::string body = {};
  HttpHeaders headers = {};
};

// Why an answer is no longer wanted, or not in time.
enum class HttpAbort { kClientGone, kTimeout };

// Where the answer of one request goes: respond() once, or begin_stream(), any number of write(), end_stream(). Safe
// from any thread; what comes after the end, or after the client has gone, does nothing. An exchange that is destroyed
// unanswered answers 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const std::string& id() const = 0;  // of the request, for logs; the header X-Request-Id of the answer
  virtual void respond(HttpResponse response) = 0;
  virtual void begin_stream(HttpResponse head) = 0;
  virtual void write(std::string piece) = 0;
  virtual void end_stream() = 0;
  // What the log's line of the request adds; before the end of the answer.
  virtual void note(std::string text) = 0;
  // Called at most once, in the server's thread, when the client goes before the end of the answer or the request takes
  // longer than HttpLimits::request_seconds; at once if the request is over.
  virtual void on_abort(std::function<void(HttpAbort)> abort) = 0;
};

class HttpHandler {
 public:
  virtual ~HttpHandler() = default;
  // Looks at a request whose body has not been read, so that what is refused costs nothing.
  virtual std::optional<HttpResponse> refuse(const HttpRequest& head) = 0;
  // Whether it is answered also when there are too many connections.
  virtual bool is_urgent(const HttpRequest& head) = 0;
  // In the server's thread: must not wait.
  virtual void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) = 0;
  // The answer to a request that the server refuses by itself, as one too large; for logs and the form of errors.
  virtual HttpResponse error(int status, const std::string& message) = 0;
  // For logs: the last thing that is said of a request. `seconds` since its first byte; status 499 where the client
  // went.
  virtual void finished(const HttpRequest& request, const std::string& id, int status, double seconds,
                        const std::string& note) = 0;
};

const char* http_reason(int status);  // "Not Found"

// A request that is refused: an HTTP status and what OpenAI's clients look for in the body.
//
//   {"error": {"message": "...", "type": "invalid_request_error", "param": "prompt", "code": null}}

class ApiError : public std::runtime_error {
 public:
  // `param`: the key of the body that is wrong; `code`: a word for programs. "" for none.
  ApiError(int status, const std::string& message, std::string param = "", std::string code = "")
      : std::runtime_error(message), status(status), param(std::move(param)), code(std::move(code)) {}

  const int status;
  const std::string param, code;
};

HttpResponse error_response(const ApiError& error);
std::string error_body(const ApiError& error);

// The page to try models on, which the server gives at "/".

HttpResponse try_page();

}  // namespace linnet
