// The server over real sockets, with a handler that does as the test says.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include "base/error.h"
#include "serving/http/http.h"

namespace linnet {
namespace {
class Client {
 public:
  explicit Client(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET, address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval longest{60, 0};  // only a failing test waits for so long
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &longest, sizeof longest);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  Client(int port, const std::string& text) : Client(port) { send(text); }
  ~Client() { close(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void send(const std::string& text) const {
    EXPECT_EQ(::send(socket_, text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  }
  // What comes until `end` has come, or the connection is closed.
  std::string read(const std::string& end) const {
    std::string text;
    for (char byte; text.find(end) == text.npos && ::recv(socket_, &byte, 1, 0) == 1;) text += byte;
    return text;
  }
  std::string read_all() const { return read("\r\n\r\n\r\n\r\n"); }
  void end_writing() const { ::shutdown(socket_, SHUT_WR); }
  void close() {
    if (socket_ >= 0) ::close(std::exchange(socket_, -1));
  }

 private:
  int socket_;
};

// Answers with what it was asked; keeps the exchanges of /hold.
class Handler : public HttpHandler {
 public:
  std::optional<HttpResponse> refuse(const HttpRequest&) override { return {}; }
  bool is_urgent(const HttpRequest& head) override { return head.path == "/health"; }
  void handle(HttpRequest request, std::shared_ptr<HttpExchange> exchange) override {
    if (request.path == "/hold") {
      const std::lock_guard lock(mutex_);
      held_.push_back(std::move(exchange));
      changed_.notify_all();
      return;
    }
    exchange->note("a note");
    exchange->respond({.type = "text/plain",
        .body = request.method + " " + request.path + " " + request.host + " " + request.client + " " + request.body +
                "\n"});
  }
  HttpResponse error(int status, const std::string& message) override { return {status, "text/plain", message + "\n"}; }
  void finished(const HttpRequest& request, const std::string&, int status, double, const std::string& note) override {
    const std::lock_guard lock(mutex_);
    log_ += request.path + " " + std::to_string(status) + " " + note + "\n";
    changed_.notify_all();
  }

  std::shared_ptr<HttpExchange> held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return !held_.empty(); });
    const auto exchange = std::move(held_.front());
    held_.pop_front();
    return exchange;
  }
  void wait_for(const std::string& line) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return log_.find(line) != log_.npos; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::shared_ptr<HttpExchange>> held_;
  std::string log_;
};

struct Served {
  explicit Served(const HttpLimits& limits = {}) : server(handler, "127.0.0.1", 0, limits), port(server.port()) {
    thread = std::thread([this] { server.run([] {}); });
    EXPECT_NE(Client(port, kHealth).read_all().find(" 200 "), std::string::npos);  // so it hears signals
  }
  ~Served() {
    ::kill(::getpid(), SIGTERM);
    thread.join();
  }

  static constexpr const char* kHealth = "GET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  static constexpr const char* kHold = "GET /hold HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  static constexpr const char* kEcho = "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  Handler handler;
  HttpServer server;
  const int port;
  std::thread thread;
};

std::string status_of(const std::string& answer) { return answer.substr(0, 12); }

TEST(HttpServer, WhatAnotherServerMayReadInAnotherWayIsRefused) {
  Served served;
  const std::string post = "POST /echo HTTP/1.1\r\nHost: a\r\n";
  for (const std::string& request : {
           post + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: identity\r\nContent-Length: 3\r\n\r\nabc",
           post + "Transfer-Encoding: identity\r\n\r\n",
           post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
           post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
           post + "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
           post + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
           post + "Content-Length: 3, 3\r\n\r\nabc",
           post + "Content-Length: 0\r\nX: a\r\n b\r\n\r\n",
           post + "Content-Length: 0\r\nX: a\r\n\tb\r\n\r\n",
           post + "Host: a\r\nContent-Length: 0\r\n\r\n",
           post + "Origin: http://a\r\nOrigin: http://b\r\nContent-Length: 0\r\n\r\n",
           std::string("GET /echo HTTP/1.1\r\n\r\n"),
           std::string("GET http://me@a/echo HTTP/1.1\r\nHost: a\r\n\r\n"),
           std::string("POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
       }) {
    const std::string answer = Client(served.port, request).read_all();
    EXPECT_EQ(status_of(answer), "HTTP/1.1 400") << request << "\n" << answer;
  }
  EXPECT_EQ(status_of(Client(served.port, "GET /echo HTTP/1.0\r\n\r\n").read_all()), "HTTP/1.1 200");
}

TEST(HttpServer, AHeadMayComeInAnyPieces) {
  Served served;
  const Client client(served.port);
  const std::string request = "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: 3\r\n\r\nabc";
  for (const char c : request) client.send(std::string(1, c));
  const std::string answer = client.read_all();
  EXPECT_NE(answer.find("POST /echo  127.0.0.1 abc\n"), answer.npos) << answer;
}

TEST(HttpServer, ATargetMayNameItsHost) {
  Served served;
  const auto asked = [&](const std::string& target) {
    const std::string answer =
        Client(served.port, "GET " + target + " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").read_all();
    return answer.substr(answer.find("\r\n\r\n") + 4);
  };
  EXPECT_EQ(asked("http://127.0.0.1:8080/echo?a=b"), "GET /echo 127.0.0.1:8080 127.0.0.1 \n");
  EXPECT_EQ(asked("HTTP://evil.example"), "GET / evil.example 127.0.0.1 \n");
  EXPECT_EQ(asked("http://[::1]?a"), "GET / [::1] 127.0.0.1 \n");
}

TEST(HttpServer, AClientThatEndsItsWritingGetsItsAnswer) {
  Served served;
  for (const char* version : {"1.1", "1.0"}) {
    const Client client(served.port, "GET /hold HTTP/" + std::string(version) + "\r\nHost: a\r\n\r\n");
    const auto exchange = served.handler.held();
    client.end_writing();
    if (version == std::string("1.1")) {  // the server has seen the end
      EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
    }
    exchange->respond({.body = "here it is"});
    const std::string answer = client.read_all();
    EXPECT_EQ(status_of(answer), "HTTP/1.1 200");
    EXPECT_TRUE(answer.ends_with("here it is")) << answer;
  }
}

TEST(HttpServer, AClientThatIsGoneEndsItsRequest) {
  Served served;
  Client client(served.port, Served::kHold);
  const auto exchange = served.handler.held();
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<HttpAbort> why;
  exchange->on_abort([&](HttpAbort reason) {
    const std::lock_guard lock(mutex);
    why = reason;
    changed.notify_all();
  });
  client.close();
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return why.has_value(); });
  EXPECT_EQ(*why, HttpAbort::kClientGone);
  served.handler.wait_for("/hold 499");
}

TEST(HttpServer, WhatIsTooLateIsTold) {
  Served served({.request_seconds = 0.05});
  const Client client(served.port, Served::kHold);
  const auto exchange = served.handler.held();
  EXPECT_EQ(status_of(client.read_all()), "HTTP/1.1 408");
  std::mutex mutex;
  std::condition_variable changed;
  bool told = false;
  exchange->on_abort([&](HttpAbort) {  // comes when all is over
    const std::lock_guard lock(mutex);
    told = true;
    changed.notify_all();
  });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return told; });
  exchange->respond({.body = "nobody reads this"});
}

TEST(HttpServer, OldClientsAreNotToldToContinue) {
  Served served;
  const Client old(served.port, "POST /echo HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  old.send("abc");
  EXPECT_EQ(status_of(old.read_all()), "HTTP/1.1 200");
  const Client client(
      served.port, "POST /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
  EXPECT_EQ(client.read("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("abc");
  EXPECT_EQ(status_of(client.read("abc\n")), "HTTP/1.1 200");
}

TEST(HttpServer, OldClientsAreToldThatTheirConnectionStaysOpen) {
  Served served;
  const Client client(served.port, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(client.read("\r\n\r\n").find("\r\nConnection: keep-alive\r\n"), std::string::npos);
}

TEST(HttpServer, ListensOnlyWhereItIsTold) {
  Served served;
  EXPECT_THROW(HttpServer(served.handler, "", 0, {}), Error);  // not on all addresses
}

TEST(HttpServer, OneConnectionTooManyClosesTheOneThatIsIdleForLongest) {
  Served served({.connections = 2});
  const std::string kept = "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n";
  const Client first(served.port, kept);
  EXPECT_EQ(status_of(first.read("127.0.0.1 \n")), "HTTP/1.1 200");
  const Client second(served.port, kept);
  EXPECT_EQ(status_of(second.read("127.0.0.1 \n")), "HTTP/1.1 200");
  const Client third(served.port, kept);
  EXPECT_EQ(status_of(third.read("127.0.0.1 \n")), "HTTP/1.1 200");
  EXPECT_EQ(first.read_all(), "");  // closed
  second.send(kept);
  EXPECT_EQ(status_of(second.read("127.0.0.1 \n")), "HTTP/1.1 200");
}

TEST(HttpServer, WhatIsUrgentIsAnsweredWhenAllConnectionsAreBusy) {
  Served served({.connections = 2, .spare = 2});
  const Client busy(served.port, Served::kHold);
  const auto exchange = served.handler.held();
  const Client also(served.port, Served::kHold);
  const auto other = served.handler.held();
  EXPECT_EQ(status_of(Client(served.port, Served::kHealth).read_all()), "HTTP/1.1 200");
  const Client waiting(served.port, Served::kEcho), next(served.port, Served::kEcho);
  EXPECT_EQ(status_of(Client(served.port, Served::kHealth).read_all()), "HTTP/1.1 200");
  EXPECT_EQ(status_of(waiting.read_all()), "HTTP/1.1 503");  // the first of three that are too many
  exchange->respond({});
  EXPECT_EQ(status_of(busy.read_all()), "HTTP/1.1 200");
  EXPECT_EQ(status_of(next.read_all()), "HTTP/1.1 200");  // it had only to wait
  other->respond({});
}

// Sanitizers see whether it is written where the connection's memory was.
TEST(HttpServer, WhatAConnectionSendsAfterItWasTurnedAwayIsThrownAway) {
  Served served({.connections = 1, .spare = 2});
  const Client busy(served.port, Served::kHold);
  const auto exchange = served.handler.held();
  const Client half(served.port, "GET /echo HTTP/1.1\r\nX: ");
  EXPECT_EQ(status_of(Client(served.port, Served::kHealth).read_all()), "HTTP/1.1 200");  // so `half` is being read
  const Client waiting(served.port, Served::kEcho), next(served.port, Served::kEcho);
  EXPECT_EQ(status_of(half.read("many connections")), "HTTP/1.1 503");
  half.send(std::string(8000, 'x'));
  EXPECT_EQ(half.read_all(), "; try again in a moment\n");
  exchange->respond({});
  EXPECT_EQ(status_of(busy.read_all()), "HTTP/1.1 200");
}

TEST(HttpServer, ANoteIsPartOfTheLogOfItsRequest) {
  Served served;
  EXPECT_EQ(status_of(Client(served.port, Served::kEcho).read_all()), "HTTP/1.1 200");
  served.handler.wait_for("/echo 200 a note\n");
}

// The server's thread hangs in a request, and two signals still end the process.
TEST(HttpServer, ASecondSignalEndsTheProcessWhateverItDoes) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    struct Hanging : Handler {
      explicit Hanging(int pipe) : pipe(pipe) {}
      void handle(HttpRequest, std::shared_ptr<HttpExchange>) override {
        [[maybe_unused]] const ssize_t told = ::write(pipe, "h", 1);
        for (;;) ::pause();
      }
      int pipe;
    } handler(ends[1]);
    ::alarm(60);                // ends a test that fails
    ::signal(SIGINT, SIG_DFL);  // ignored where the test runs in the background
    HttpServer server(handler, "127.0.0.1", 0, {});
    const int port = server.port();
    [[maybe_unused]] const ssize_t told = ::write(ends[1], &port, sizeof port);
    server.run([] {});
    ::_exit(0);
  }
  int port = 0;
  char byte = 0;
  ASSERT_EQ(::read(ends[0], &port, sizeof port), static_cast<ssize_t>(sizeof port));
  const Client client(port, Served::kHold);
  ASSERT_EQ(::read(ends[0], &byte, 1), 1);
  ::kill(child, SIGTERM);
  ::kill(child, SIGINT);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_TRUE(WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT) << WTERMSIG(status);
  for (const int end : ends) ::close(end);
}

// `ulimit -n 6`
TEST(HttpServerDeathTest, WithoutDescriptorsIsAnErrorOfTheSystem) {
  const auto open_with = [](rlim_t more) {
    rlimit limit{};
    limit.rlim_cur = limit.rlim_max = static_cast<rlim_t>(::dup(0)) + more;
    ::setrlimit(RLIMIT_NOFILE, &limit);
    Handler handler;
    try {
      const HttpServer server(handler, "127.0.0.1", 0, {});
    } catch (const Error& error) {
      ::_exit(error.kind() == ErrorKind::kInternal ? 1 : 42);
    }
    ::_exit(2);
  };
  for (const rlim_t more : {0, 2, 4}) EXPECT_EXIT(open_with(more), testing::ExitedWithCode(42), "");
}
}  // namespace
}  // namespace linnet
