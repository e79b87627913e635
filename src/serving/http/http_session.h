// Connections and state of the HTTP server. Only http_server.cpp and http_session.cpp include this, and Boost.
#pragma once
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <deque>
#include <set>
#include "serving/http/http.h"

namespace linnet {
namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using asio::ip::tcp;
using boost::system::error_code;
using Clock = std::chrono::steady_clock;

class HttpSession;

struct HttpServer::State {
  State(HttpHandler& handler, const HttpLimits& limits) : handler(handler), limits(limits) {}

  HttpHandler& handler;
  const HttpLimits limits;
  asio::io_context io{1};
  tcp::acceptor acceptor{io};
  asio::steady_timer retry{io};  // after a failed accept
  asio::signal_set reload_signals{io};
  std::set<std::shared_ptr<HttpSession>> sessions;
  std::deque<std::shared_ptr<HttpSession>> spares;  // connections beyond the limit, in order of arrival
  bool accepting = false;                           // an accept is under way
  bool draining = false;
  uint64_t requests = 0;
  std::string id_prefix;

  void accept();
  void add(tcp::socket socket);
  bool close_idle();
  void remove(const std::shared_ptr<HttpSession>& session);
  void drain();
  std::string next_id() { return id_prefix + std::to_string(++requests); }
};

// One connection: repeatedly reads a request, waits for its answer and writes it. Runs in the server's thread; an
// Exchange posts calls from other threads.
class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(HttpServer::State& server, tcp::socket socket)
      : server_(server), socket_(std::move(socket)), timer_(server.io),
        buffer_(server.limits.header_bytes + 64 * 1024) {
    error_code ignored;
    socket_.set_option(tcp::no_delay(true), ignored);
    socket_.set_option(asio::socket_base::keep_alive(true), ignored);  // detects lost clients
    socket_.non_blocking(true, ignored);
  }

  void start() { read_head(); }
  // A new connection may have a request on its way.
  bool is_idle() const {
    return state_ == kIdle && !is_spare_ && (number_ > 0 || Clock::now() - idle_since_ > std::chrono::seconds(1));
  }
  Clock::time_point idle_since() const { return idle_since_; }
  // A connection beyond the limit: its request waits to be admitted or turned away.
  void make_spare() { is_spare_ = true; }
  void admit();
  void turn_away();
  // Ends after the present request. An idle connection gets a moment for a request on its way.
  void drain() {
    if (state_ == kIdle) set_timer(1);
  }
  void close();

  // The answer from an exchange. `request`: the number of its request.
  void respond(uint64_t request, HttpResponse response);
  void begin_stream(uint64_t request, HttpResponse head);
  void write_chunk(uint64_t request, std::string piece);
  void end_stream(uint64_t request);
  void set_note(uint64_t request, std::string note) {
    if (request == number_) note_ = std::move(note);
  }
  void set_abort(uint64_t request, std::function<void(HttpAbort)> abort);

 private:
  enum State { kIdle, kReading, kParked, kAnswering, kClosing, kClosed };

  void read_head();
  void begin_head();
  void parse_head();
  void got_head(error_code error);
  void fail_read(int status, const std::string& message);
  void read_body();
  void handle();
  void read_failed(error_code error);
  void refuse(HttpResponse response);
  void watch();
  void set_timer(double seconds);
  void timed_out();
  void give_up();
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
  bool streaming_ = false, answered_ = false, is_spare_ = false, half_closed_ = false;

  HttpRequest request_;
  std::string id_, note_;
  uint64_t number_ = 0;
  Clock::time_point idle_since_, began_, deadline_;
  std::function<void(HttpAbort)> abort_;
  int status_ = 0;

  std::deque<std::string> out_;
  size_t out_offset_ = 0;  // of the first of them
  uint64_t unsent_ = 0;
};
}  // namespace linnet
