#include "serving/http/http_session.h"
#include <fmt/chrono.h>
#include <sys/socket.h>
#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>
#include <ctime>
#include "base/log.h"
#include "base/text.h"

namespace linnet {
namespace {
std::chrono::milliseconds duration(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
}

std::string date() { return fmt::format("{:%a, %d %b %Y %H:%M:%S GMT}", fmt::gmtime(std::time(nullptr))); }

HttpRequest convert(http::request<http::string_body>&& message) {
  HttpRequest request;
  request.method = std::string(message.method_string());
  std::string target(message.target());
  for (const std::string_view scheme : {"http://", "https://"})
    if (lower_ascii(std::string_view(target).substr(0, scheme.size())) == scheme) {
      const size_t end = std::min(target.find_first_of("/?", scheme.size()), target.size());
      request.host = target.substr(scheme.size(), end - scheme.size());
      target = target.substr(end);
      if (!target.starts_with('/')) target.insert(0, "/");
      break;
    }
  request.path = target.substr(0, target.find('?'));
  for (const auto& field : message)
    request.headers.emplace_back(
        lower_ascii({field.name_string().data(), field.name_string().size()}), std::string(field.value()));
  request.body = std::move(message.body());
  return request;
}

// Whether a header continues on the next line, which servers must reject by RFC 9112. `data` begins in a head.
bool has_folded_line(std::string_view data) {
  data = data.substr(0, data.find("\r\n\r\n"));
  return data.find("\r\n ") != data.npos || data.find("\r\n\t") != data.npos;
}

// A fault that another server may read differently, so that it must not be answered; "" if there is none.
std::string fault_of(const HttpRequest& head, bool is_1_1) {
  const auto count = [&](std::string_view name) {
    return std::ranges::count(head.headers, name, [](const auto& header) { return std::string_view(header.first); });
  };
  for (const char* name : {"host", "origin", "content-length", "transfer-encoding"})
    if (count(name) > 1) return std::string("the request has several headers \"") + name + "\"";
  if (is_1_1 && count("host") == 0) return "a request of HTTP/1.1 needs a header \"host\"";
  if (head.header("content-length").find(',') != std::string_view::npos) return "the request has several lengths";
  if (head.host.find('@') != head.host.npos) return "the target names a user";
  if (count("transfer-encoding") == 0) return "";
  if (!is_1_1) return "HTTP/1.0 has no \"transfer-encoding\"";
  if (count("content-length") > 0) return "the request has both \"transfer-encoding\" and \"content-length\"";
  return lower_ascii(head.header("transfer-encoding")) == "chunked"
             ? ""
             : "the only \"transfer-encoding\" that is supported is \"chunked\"";
}

std::string chunk(const std::string& piece) { return fmt::format("{:x}\r\n{}\r\n", piece.size(), piece); }

// Owned by whoever answers; keeps its session, which may be closed by then.
class Exchange : public HttpExchange {
 public:
  Exchange(asio::io_context& io, std::shared_ptr<HttpSession> session, uint64_t request, std::string id)
      : io_(io), session_(std::move(session)), request_(request), id_(std::move(id)) {}
  ~Exchange() override {
    if (!answered_) respond({.status = 500, .type = "text/plain", .body = "the request was not answered\n"});
  }
  const std::string& id() const override { return id_; }
  void respond(HttpResponse response) override {
    answered_ = true;
    post(&HttpSession::respond, std::move(response));
  }
  void begin_stream(HttpResponse head) override {
    answered_ = true;
    post(&HttpSession::begin_stream, std::move(head));
  }
  void write(std::string piece) override { post(&HttpSession::write_chunk, std::move(piece)); }
  void end_stream() override { post(&HttpSession::end_stream); }
  void note(std::string text) override { post(&HttpSession::set_note, std::move(text)); }
  void on_abort(std::function<void(HttpAbort)> abort) override { post(&HttpSession::set_abort, std::move(abort)); }

 private:
  // Calls a session's function in the server's thread.
  template <class... What> void post(void (HttpSession::*say)(uint64_t, What...), What... what) {
    asio::post(io_, [session = session_, request = request_, say, ... what = std::move(what)]() mutable {
      (session.get()->*say)(request, std::move(what)...);
    });
  }

  asio::io_context& io_;
  const std::shared_ptr<HttpSession> session_;
  const uint64_t request_;
  const std::string id_;
  bool answered_ = false;
};
}  // namespace

void HttpSession::set_timer(double seconds) {
  const uint64_t number = ++timer_number_;
  timer_.expires_after(duration(seconds));
  timer_.async_wait([self = shared_from_this(), number](error_code error) {
    if (!error && number == self->timer_number_) self->timed_out();
  });
}

void HttpSession::timed_out() {
  switch (state_) {
    case kIdle: return close();
    case kReading:
      read_timed_out_ = true;
      socket_.cancel();
      return;
    case kAnswering:
      if (writing_) return close();  // the client reads nothing
      return abort_ ? abort(HttpAbort::kTimeout) : give_up();
    case kParked: return turn_away();
    case kClosing: return close();
    case kClosed: return;
  }
}

void HttpSession::read_head() {
  request_ = {}, id_.clear(), note_.clear(), abort_ = nullptr, answered_ = streaming_ = false, status_ = 0;
  parser_.emplace();
  parser_->header_limit(server_.limits.header_bytes);
  parser_->body_limit(server_.limits.body_bytes);
  if (buffer_.size() > 0) return begin_head();
  state_ = kIdle;
  idle_since_ = Clock::now();
  set_timer(server_.draining ? 1 : server_.limits.idle_seconds);
  // The first bytes tell an idle connection from one with a slow request.
  socket_.async_wait(tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
    if (self->state_ != kIdle) return;
    if (error) return self->close();
    self->begin_head();
  });
}

void HttpSession::begin_head() {
  state_ = kReading;
  began_ = Clock::now();
  set_timer(server_.limits.read_seconds);
  parse_head();
}

// Like http::async_read_header(), which would accept folded lines.
void HttpSession::parse_head() {
  error_code error;
  const std::string_view data(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (!data.empty()) {
    if (has_folded_line(data)) return fail_read(400, "a header goes on in a second line");
    buffer_.consume(parser_->put(buffer_.data(), error));
    if (parser_->is_header_done()) return got_head({});
    if (error && error != http::error::need_more) return got_head(error);
    if (buffer_.size() > server_.limits.header_bytes) return got_head(http::error::header_limit);
  }
  socket_.async_read_some(buffer_.prepare(8 * 1024), [self = shared_from_this()](error_code failed, size_t size) {
    if (self->state_ != kReading) return;
    self->buffer_.commit(size);
    failed ? self->got_head(failed) : self->parse_head();
  });
}

void HttpSession::got_head(error_code error) {
  if (state_ != kReading) return;
  if (error) return read_failed(error);
  HttpRequest head = convert(http::request<http::string_body>(parser_->get().base()));
  error_code unknown;
  head.client = socket_.remote_endpoint(unknown).address().to_string();
  id_ = server_.next_id();
  keep_alive_ = parser_->get().keep_alive() && !is_spare_;
  chunked_ = parser_->get().version() >= 11;
  request_ = head;
  if (const std::string fault = fault_of(head, chunked_); !fault.empty()) return fail_read(400, fault);
  if (const auto length = parser_->content_length(); length && *length > server_.limits.body_bytes)
    return read_failed(http::error::body_limit);
  if (auto refused = server_.handler.refuse(head)) {
    // A little body that came with the head is skipped; more ends the connection.
    keep_alive_ = keep_alive_ && parser_->content_length().value_or(0) == 0 && !parser_->chunked();
    return refuse(std::move(*refused));
  }
  if (is_spare_ && !server_.handler.is_urgent(head)) {
    state_ = kParked;
    return;
  }
  read_body();
}

void HttpSession::admit() {
  is_spare_ = false;
  if (state_ != kParked) return;
  state_ = kReading;
  keep_alive_ = parser_->get().keep_alive();
  set_timer(server_.limits.read_seconds);
  read_body();
}

void HttpSession::turn_away() {
  if (state_ != kIdle && state_ != kReading && state_ != kParked) return close();
  if (id_.empty()) began_ = Clock::now();
  if (state_ == kReading) socket_.cancel();  // or that read would write to memory that linger() frees
  fail_read(503, "too many connections; try again in a moment");
}

void HttpSession::read_body() {
  if (parser_->is_done()) return handle();
  if (chunked_ && lower_ascii(request_.header("expect")) == "100-continue" && buffer_.size() == 0)
    send("HTTP/1.1 100 Continue\r\n\r\n");
  http::async_read(socket_, buffer_, *parser_, [self = shared_from_this()](error_code error, size_t) {
    if (self->state_ == kReading) error ? self->read_failed(error) : self->handle();
  });
}

void HttpSession::handle() {
  HttpRequest taken = request_;
  taken.body = std::move(parser_->get().body());
  parser_.reset();
  state_ = kAnswering;
  ++number_;
  deadline_ = Clock::now() + duration(server_.limits.request_seconds);
  set_timer(server_.limits.request_seconds);
  watch();
  server_.handler.handle(std::move(taken), std::make_shared<Exchange>(server_.io, shared_from_this(), number_, id_));
}

void HttpSession::fail_read(int status, const std::string& message) {
  keep_alive_ = false;
  if (id_.empty()) id_ = server_.next_id();
  refuse(server_.handler.error(status, message));
}

void HttpSession::read_failed(error_code error) {
  const bool nothing_came = !parser_->got_some() && buffer_.size() == 0;
  const HttpLimits& limits = server_.limits;
  if (read_timed_out_ && !nothing_came)
    return fail_read(
        408, fmt::format("the request did not come within {} seconds", static_cast<int64_t>(limits.read_seconds)));
  if (error == http::error::header_limit || error == http::error::buffer_overflow)
    return fail_read(431, fmt::format("the head of the request is larger than {} bytes", limits.header_bytes));
  if (error == http::error::body_limit)
    return fail_read(413, fmt::format("the body of the request is larger than {} bytes", limits.body_bytes));
  if (error.category() == make_error_code(http::error::bad_version).category() && error != http::error::end_of_stream &&
      error != http::error::partial_message)
    return fail_read(400, "this is not an HTTP request: " + error.message());
  close();
}

// Answers a request that the handler does not fully see.
void HttpSession::refuse(HttpResponse response) {
  state_ = kAnswering;
  ++number_;
  respond(number_, std::move(response));
}

// Notices when the client leaves before its answer. A client may close only its writing half; that shows when it is
// sent something, as a lost connection answers with a reset. A second "100 Continue" means nothing in HTTP/1.1.
void HttpSession::watch() {
  if (watching_) return;
  watching_ = true;
  const auto what = half_closed_ ? tcp::socket::wait_error : tcp::socket::wait_read;
  socket_.async_wait(what, [self = shared_from_this()](error_code error) {
    self->watching_ = false;
    if (error || self->state_ != kAnswering) return;
    char byte;
    const ssize_t got = ::recv(self->socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    if (got > 0) return;  // the next request, waiting
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return self->watch();
    if (got == 0 && !self->half_closed_) {
      self->half_closed_ = true;
      if (self->chunked_ && !self->streaming_ && !self->answered_) self->send("HTTP/1.1 100 Continue\r\n\r\n");
      return self->watch();
    }
    self->close();
  });
}

void HttpSession::set_abort(uint64_t request, std::function<void(HttpAbort)> abort) {
  if (request != number_ || state_ != kAnswering || answered_) return abort(HttpAbort::kClientGone);
  abort_ = std::move(abort);
}

void HttpSession::abort(HttpAbort why) {
  auto tell = std::exchange(abort_, nullptr);
  if (!tell) return;
  if (why == HttpAbort::kTimeout) {  // some more time to answer that
    deadline_ = Clock::now() + duration(server_.limits.write_seconds);
    set_timer(server_.limits.write_seconds);
  }
  tell(why);
}

void HttpSession::give_up() {
  if (streaming_) return close();
  keep_alive_ = false;
  respond(number_, server_.handler.error(408, "the request was not answered within the server's limit of time"));
}

std::string HttpSession::head_of(const HttpResponse& response, bool stream) const {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " " + http_reason(response.status) +
                     "\r\nDate: " + date() + "\r\nServer: linnet\r\nContent-Type: " + response.type + "\r\n";
  if (!id_.empty()) head += "X-Request-Id: " + id_ + "\r\n";
  for (const auto& [name, value] : response.headers) head += name + ": " + value + "\r\n";
  if (stream && chunked_) head += "Transfer-Encoding: chunked\r\n";
  if (!stream) head += "Content-Length: " + std::to_string(response.body.size()) + "\r\n";
  if (!keep_alive_) head += "Connection: close\r\n";
  else if (!chunked_) head += "Connection: keep-alive\r\n";  // HTTP/1.0 would close
  return head + "\r\n";
}

void HttpSession::respond(uint64_t request, HttpResponse response) {
  if (request != number_ || state_ != kAnswering || answered_ || streaming_) return;
  answered_ = true, abort_ = nullptr, status_ = response.status;
  keep_alive_ = keep_alive_ && !server_.draining;
  std::string bytes = head_of(response, false);
  if (request_.method != "HEAD") bytes += response.body;
  send(std::move(bytes));
}

void HttpSession::begin_stream(uint64_t request, HttpResponse head) {
  if (request != number_ || state_ != kAnswering || answered_ || streaming_) return;
  streaming_ = true, status_ = head.status;
  keep_alive_ = keep_alive_ && chunked_ && !server_.draining;
  send(head_of(head, true));
}

void HttpSession::write_chunk(uint64_t request, std::string piece) {
  if (request != number_ || state_ != kAnswering || answered_ || !streaming_ || piece.empty()) return;
  if (unsent_ + piece.size() > server_.limits.unsent_bytes) return close();
  send(chunked_ ? chunk(piece) : std::move(piece));
}

void HttpSession::end_stream(uint64_t request) {
  if (request != number_ || state_ != kAnswering || answered_ || !streaming_) return;
  answered_ = true, abort_ = nullptr;
  if (chunked_) send("0\r\n\r\n");
  if (!writing_) sent_all();
}

void HttpSession::send(std::string bytes) {
  unsent_ += bytes.size();
  out_.push_back(std::move(bytes));
  if (writing_) return;
  writing_ = true;
  if (state_ == kAnswering) set_timer(server_.limits.write_seconds);
  write_some();
}

void HttpSession::write_some() {
  const asio::const_buffer rest = asio::const_buffer(out_.front().data(), out_.front().size()) + out_offset_;
  socket_.async_write_some(rest, [self = shared_from_this()](error_code error, size_t size) {
    if (self->state_ == kClosed) return;
    if (error) return self->close();
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

void HttpSession::sent_all() {
  if (state_ != kAnswering) return;
  if (!answered_)  // an unfinished stream
    return set_timer(std::max(0.0, std::chrono::duration<double>(deadline_ - Clock::now()).count()));
  finish_request(status_);
  if (!keep_alive_) return linger();
  read_head();
}

void HttpSession::finish_request(int status) {
  if (id_.empty()) return;
  const double seconds = std::chrono::duration<double>(Clock::now() - began_).count();
  server_.handler.finished(request_, id_, status, seconds, note_);
  id_.clear();
}

// Closing with unread bytes resets the connection, and the client may miss the answer: discard input for a moment.
void HttpSession::linger() {
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

void HttpSession::close() {
  if (state_ == kClosed) return;
  abort(HttpAbort::kClientGone);
  const bool unanswered = state_ == kAnswering;
  state_ = kClosed;
  if (unanswered) finish_request(499);
  ++timer_number_;
  timer_.cancel();
  error_code ignored;
  socket_.close(ignored);
  out_.clear();
  server_.remove(shared_from_this());
}
}  // namespace linnet
