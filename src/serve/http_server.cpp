#include "serve/http_server.h"

#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <csignal>
#include <ctime>
#include <deque>
#include <set>

#include "base/error.h"
#include "base/log.h"

namespace linnet {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

std::chrono::milliseconds duration(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  char text[64];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return text;
}

std::string lower_case(std::string_view name) {
  std::string lower(name);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

HttpRequest convert(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  const std::string target(message.target());
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message)
    request.headers.emplace_back(lower_case({field.name_string().data(), field.name_string().size()}),
                                 std::string(field.value()));
  request.body = std::move(message.body());
  return request;
}

std::string chunk(const std::string& piece) {
  char size[24];
  std::snprintf(size, sizeof size, "%zx\r\n", piece.size());
  return size + piece + "\r\n";
}

}  // namespace

class Session;

struct HttpServer::State {
  State(HttpHandler& handler, const HttpLimits& limits) : handler(handler), limits(limits) {}

  HttpHandler& handler;
  const HttpLimits limits;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::signal_set stop_signals{io}, reload_signals{io};
  std::set<std::shared_ptr<Session>> sessions;
  bool accepting = false;  // an accept is under way
  bool draining = false;
  uint64_t requests = 0;
  std::string id_prefix;

  void accept();
  void add(tcp::socket socket);
  void remove(const std::shared_ptr<Session>& session);
  void drain();
  std::string next_id() { return id_prefix + std::to_string(++requests); }
};

// One connection. It reads a request, waits for its answer and writes it, then reads the next one. All of it happens in
// the server's thread; an Exchange posts what other threads say.
class Session : public std::enable_shared_from_this<Session> {
 public:
  Session(HttpServer::State& server, tcp::socket socket)
      : server_(server),
        socket_(std::move(socket)),
        timer_(server.io),
        buffer_(server.limits.header_bytes + 64 * 1024) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);  // finds clients that went without a word
    socket_.non_blocking(true, ignored);
  }

  void start() { read_head(); }
  // No request after the present one. A connection without a request is given a moment, as one may be on its way.
  void drain() {
    if (state_ == kIdle) set_timer(1);
  }
  void close();

  // The answer, from an exchange. `request`: the number of the request that it is for.
  void respond(uint64_t request, HttpResponse response);
  void begin_stream(uint64_t request, HttpResponse head);
  void write_chunk(uint64_t request, std::string piece);
  void end_stream(uint64_t request);
  void set_abort(uint64_t request, std::function<void(HttpAbort)> abort) {
    if (request == number_ && state_ == kAnswering) abort_ = std::move(abort);
  }

 private:
  enum State { kIdle, kReading, kAnswering, kClosing, kClosed };

  void read_head();
  void got_head(error_code error);
  void read_body();
  void got_body(error_code error);
  void handle();
  void read_failed(error_code error);
  void refuse(HttpResponse response);
  void watch();
  void set_timer(double seconds);
  void timed_out();
  void abort(HttpAbort why);
  void send(std::string bytes);
  void write_some();
  void sent_all();
  void finish_request(int status);
  void linger();
  std::string head_of(const HttpResponse& response, bool stream) const;

  HttpServer::State& server_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  uint64_t timer_number_ = 0;
  beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  State state_ = kIdle;
  bool read_timed_out_ = false, watching_ = false, writing_ = false, keep_alive_ = true, chunked_ = false;
  bool streaming_ = false, answered_ = false;

  // The request that is being answered.
  HttpRequest request_;
  std::string id_;
  uint64_t number_ = 0;
  Clock::time_point began_, deadline_;
  std::function<void(HttpAbort)> abort_;
  int status_ = 0;

  std::deque<std::string> out_;
  size_t out_offset_ = 0;  // of the first of them
  uint64_t unsent_ = 0;
};

namespace {

// Belongs to whoever answers; holds its session, which may be closed by then.
class Exchange : public HttpExchange {
 public:
  Exchange(asio::io_context& io, std::shared_ptr<Session> session, uint64_t request, std::string id)
      : io_(io), session_(std::move(session)), request_(request), id_(std::move(id)) {}
  ~Exchange() override {
    if (!answered_) respond({.status = 500, .type = "text/plain", .body = "the request was not answered\n"});
  }
  const std::string& id() const override { return id_; }
  void respond(HttpResponse response) override {
    answered_ = true;
    post([response = std::move(response)](Session& session, uint64_t request) mutable {
      session.respond(request, std::move(response));
    });
  }
  void begin_stream(HttpResponse head) override {
    answered_ = true;
    post([head = std::move(head)](Session& session, uint64_t request) mutable {
      session.begin_stream(request, std::move(head));
    });
  }
  void write(std::string piece) override {
    post([piece = std::move(piece)](Session& session, uint64_t request) mutable {
      session.write_chunk(request, std::move(piece));
    });
  }
  void end_stream() override {
    post([](Session& session, uint64_t request) { session.end_stream(request); });
  }
  void on_abort(std::function<void(HttpAbort)> abort) override { session_->set_abort(request_, std::move(abort)); }

 private:
  template <class Say>
  void post(Say say) {
    asio::post(io_,
               [session = session_, request = request_, say = std::move(say)]() mutable { say(*session, request); });
  }

  asio::io_context& io_;
  const std::shared_ptr<Session> session_;
  const uint64_t request_;
  const std::string id_;
  bool answered_ = false;
};

}  // namespace

void Session::set_timer(double seconds) {
  const uint64_t number = ++timer_number_;
  timer_.expires_after(duration(seconds));
  timer_.async_wait([self = shared_from_this(), number](error_code error) {
    if (!error && number == self->timer_number_) self->timed_out();
  });
}

void Session::timed_out() {
  switch (state_) {
    case kIdle:
      return close();
    case kReading:
      read_timed_out_ = true;
      socket_.cancel();
      return;
    case kAnswering:
      if (writing_) {  // the client takes nothing
        abort(HttpAbort::kClientGone);
        return close();
      }
      return abort(HttpAbort::kTimeout);
    case kClosing:
      return close();
    case kClosed:
      return;
  }
}

void Session::read_head() {
  state_ = buffer_.size() > 0 ? kReading : kIdle;
  request_ = {}, id_.clear(), abort_ = nullptr, answered_ = streaming_ = false, status_ = 0;
  parser_.emplace();
  parser_->header_limit(server_.limits.header_bytes);
  parser_->body_limit(server_.limits.body_bytes);
  if (state_ == kReading) {
    began_ = Clock::now();
    set_timer(server_.limits.read_seconds);
  } else {
    set_timer(server_.draining ? 1 : server_.limits.idle_seconds);
  }
  // The first bytes tell an idle connection from one that is slow to say what it wants.
  if (state_ == kIdle) {
    socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
      if (self->state_ != kIdle) return;
      if (error) return self->close();
      self->state_ = kReading;
      self->began_ = Clock::now();
      self->set_timer(self->server_.limits.read_seconds);
      http::async_read_header(self->socket_, self->buffer_, *self->parser_,
                              [self](error_code failed, size_t) { self->got_head(failed); });
    });
    return;
  }
  http::async_read_header(socket_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, size_t) { self->got_head(error); });
}

void Session::got_head(error_code error) {
  if (state_ != kReading) return;
  if (error) return read_failed(error);
  HttpRequest head = convert(http::request<http::string_body>(parser_->get().base()));
  id_ = server_.next_id();
  keep_alive_ = parser_->get().keep_alive();
  chunked_ = parser_->get().version() >= 11;
  request_ = head;
  if (const auto length = parser_->content_length(); length && *length > server_.limits.body_bytes)
    return read_failed(http::error::body_limit);
  if (auto refused = server_.handler.refuse(head)) {
    // What little body has come with the head is skipped; more ends the connection.
    keep_alive_ = keep_alive_ && parser_->content_length().value_or(0) == 0 && !parser_->chunked();
    return refuse(std::move(*refused));
  }
  if (lower_case(head.header("expect")) == "100-continue" && buffer_.size() == 0) {
    send("HTTP/1.1 100 Continue\r\n\r\n");
  }
  read_body();
}

void Session::read_body() {
  if (parser_->is_done()) return handle();
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this()](error_code error, size_t) { self->got_body(error); });
}

void Session::got_body(error_code error) {
  if (state_ != kReading) return;
  if (error) return read_failed(error);
  handle();
}

void Session::handle() {
  request_ = convert(parser_->release());
  parser_.reset();
  state_ = kAnswering;
  ++number_;
  deadline_ = Clock::now() + duration(server_.limits.request_seconds);
  set_timer(server_.limits.request_seconds);
  watch();
  HttpRequest taken{request_.method, request_.path, request_.headers, std::move(request_.body)};
  server_.handler.handle(std::move(taken), std::make_shared<Exchange>(server_.io, shared_from_this(), number_, id_));
}

void Session::read_failed(error_code error) {
  const bool nothing_came = !parser_->got_some() && buffer_.size() == 0;
  const auto answer = [&](int status, const std::string& message) {
    keep_alive_ = false;
    if (id_.empty()) id_ = server_.next_id();
    refuse(server_.handler.error(status, message));
  };
  if (read_timed_out_ && !nothing_came)
    return answer(408, "the request did not come within " +
                           std::to_string(static_cast<int64_t>(server_.limits.read_seconds)) + " seconds");
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return answer(431,
                  "the head of the request is larger than " + std::to_string(server_.limits.header_bytes) + " bytes");
  if (error == http::error::body_limit)
    return answer(413,
                  "the body of the request is larger than " + std::to_string(server_.limits.body_bytes) + " bytes");
  if (error.category() == make_error_code(http::error::bad_version).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message)
    return answer(400, "this is not an HTTP request: " + error.message());
  close();
}

// Answers a request that the handler does not get to see whole.
void Session::refuse(HttpResponse response) {
  state_ = kAnswering;
  ++number_;
  respond(number_, std::move(response));
}

// Notices that the client closes its connection while it waits for an answer.
void Session::watch() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    self->watching_ = false;
    if (error || self->state_ != kAnswering) return;
    char byte;
    const ssize_t got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return;  // the next request, which waits
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return self->watch();
    self->abort(HttpAbort::kClientGone);
    self->close();
  });
}

void Session::abort(HttpAbort why) {
  if (auto tell = std::exchange(abort_, nullptr)) {
    if (why == HttpAbort::kTimeout) {  // some time more, in which that is answered
      deadline_ = Clock::now() + duration(server_.limits.write_seconds);
      set_timer(server_.limits.write_seconds);
    }
    return tell(why);
  }
  if (why == HttpAbort::kTimeout) close();  // nobody answers
}

std::string Session::head_of(const HttpResponse& response, bool stream) const {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + http_reason(response.status) +
                     "\r\nDate: " + date() + "\r\nServer: linnet\r\nContent-Type: " + response.type + "\r\n";
  if (!id_.empty()) head += "X-Request-Id: " + id_ + "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  if (stream && chunked_) head += "Transfer-Encoding: chunked\r\n";
  if (!stream) head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  if (!keep_alive_) head += "Connection: close\r\n";
  return head + "\r\n";
}

void Session::respond(uint64_t request, HttpResponse response) {
  if (request != number_ || state_ != kAnswering || answered_ || streaming_) return;
  answered_ = true, abort_ = nullptr, status_ = response.status;
  keep_alive_ = keep_alive_ && !server_.draining;
  std::string bytes = head_of(response, false);
  if (request_.method != "HEAD") bytes += response.body;
  send(std::move(bytes));
}

void Session::begin_stream(uint64_t request, HttpResponse head) {
  if (request != number_ || state_ != kAnswering || answered_ || streaming_) return;
  streaming_ = true, status_ = head.status;
  keep_alive_ = keep_alive_ && chunked_ && !server_.draining;
  send(head_of(head, true));
}

void Session::write_chunk(uint64_t request, std::string piece) {
  if (request != number_ || state_ != kAnswering || answered_ || !streaming_ || piece.empty()) return;
  if (unsent_ + piece.size() > server_.limits.unsent_bytes) {
    abort(HttpAbort::kClientGone);
    return close();
  }
  send(chunked_ ? chunk(piece) : std::move(piece));
}

void Session::end_stream(uint64_t request) {
  if (request != number_ || state_ != kAnswering || answered_ || !streaming_) return;
  answered_ = true, abort_ = nullptr;
  if (chunked_) send("0\r\n\r\n");
  if (!writing_) sent_all();
}

void Session::send(std::string bytes) {
  unsent_ += bytes.size();
  out_.push_back(std::move(bytes));
  if (writing_) return;
  writing_ = true;
  if (state_ == kAnswering) set_timer(server_.limits.write_seconds);
  write_some();
}

void Session::write_some() {
  const asio::const_buffer rest = asio::const_buffer(out_.front().data(), out_.front().size()) + out_offset_;
  socket_.async_write_some(rest, [self = shared_from_this()](error_code error, size_t size) {
    if (self->state_ == kClosed) return;
    if (error) {
      self->abort(HttpAbort::kClientGone);
      return self->close();
    }
    self->unsent_ -= size, self->out_offset_ += size;
    if (self->out_offset_ == self->out_.front().size()) self->out_.pop_front(), self->out_offset_ = 0;
    if (!self->out_.empty()) {
      if (self->state_ == kAnswering) self->set_timer(self->server_.limits.write_seconds);
      return self->write_some();
    }
    self->writing_ = false;
    self->sent_all();
  });
}

// All that there is to say so far has been written.
void Session::sent_all() {
  if (state_ != kAnswering) return;
  if (!answered_)  // a stream that goes on
    return set_timer(std::max(0.0, std::chrono::duration<double>(deadline_ - Clock::now()).count()));
  finish_request(status_);
  if (!keep_alive_) return linger();
  read_head();
}

void Session::finish_request(int status) {
  if (id_.empty()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  server_.handler.finished(request_, id_, status, seconds);
  id_.clear();
}

// A connection that is closed while bytes of its client are unread is reset, and the client may not see the answer: so
// the client is told that this is the end, and what it still sends is thrown away for a moment.
void Session::linger() {
  state_ = kClosing;
  set_timer(2);
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  buffer_.clear();
  const auto discard = [self = shared_from_this()](const auto& again) -> void {
    self->socket_.async_read_some(self->buffer_.prepare(16 * 1024), [self, again](error_code error, size_t) {
      if (self->state_ != kClosing) return;
      error ? self->close() : again(again);
    });
  };
  discard(discard);
}

void Session::close() {
  if (state_ == kClosed) return;
  const bool unanswered = state_ == kAnswering;
  state_ = kClosed;
  if (unanswered) finish_request(499);
  abort_ = nullptr;
  ++timer_number_;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  out_.clear();
  server_.remove(shared_from_this());
}

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
  const auto session = std::make_shared<Session>(*this, std::move(socket));
  sessions.insert(session);
  session->start();
}

void HttpServer::State::remove(const std::shared_ptr<Session>& session) {
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
