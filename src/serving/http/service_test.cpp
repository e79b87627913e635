// What the service refuses and where it works, without sockets and without a model.
#include "serving/http/service.h"
#include <gtest/gtest.h>
#include <future>
#include "temporary_folder.h"

namespace linnet {
namespace {
struct HttpAnswer {
  int status;
  std::thread::id thread;
  std::string body = {};
};

class Exchange : public HttpExchange {
 public:
  explicit Exchange(std::promise<HttpAnswer>& answer) : answer_(answer) {}
  const std::string& id() const override { return id_; }
  void respond(HttpResponse response) override {
    answer_.set_value({response.status, std::this_thread::get_id(), response.body});
  }
  void begin_stream(HttpResponse) override {}
  void write(std::string) override {}
  void end_stream() override {}
  void note(std::string) override {}
  void on_abort(std::function<void(HttpAbort)>) override {}

 private:
  std::promise<HttpAnswer>& answer_;
  const std::string id_ = "1";
};

HttpAnswer answer_of(Service& service, const std::string& method, const std::string& path, const std::string& body) {
  std::promise<HttpAnswer> answer;
  std::future<HttpAnswer> given = answer.get_future();
  service.handle({.method = method, .path = path, .body = body}, std::make_shared<Exchange>(answer));
  return given.get();
}

TEST(Service, BodiesAreReadBesideTheServersThread) {
  Service service({.log_requests = false});
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/classify"}) {
    const HttpAnswer wrong = answer_of(service, "POST", path, "{");
    EXPECT_EQ(wrong.status, 400) << path;
    EXPECT_NE(wrong.thread, std::this_thread::get_id()) << path;
  }
  const HttpAnswer health = answer_of(service, "GET", "/health", "");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.thread, std::this_thread::get_id());  // waits for no body
}

// Answers every question with the first word of its text.
class FirstWord : public Predictor {
 public:
  bool takes_pairs() const override { return true; }
  int64_t outputs() const override { return 2; }
  int64_t choices() const override { return 20; }
  std::vector<std::string> heading(int64_t) const override { return {"answer"}; }
  std::vector<Answer> answer(const std::vector<std::string>& texts, int64_t top) override {
    std::vector<Answer> found;
    for (const std::string& text : texts) {
      const size_t begin = text.find('\t') + 1;
      Json json{{"answer", text.substr(begin, text.find(' ', begin) - begin)}, {"score", 0.5}};
      if (top > 1) json = {{"top", Json::array({json})}};
      found.push_back({.cells = {}, .json = std::move(json)});
    }
    return found;
  }
};

TEST(Service, AnswersQuestionsAsPipelinesDo) {
  const testing::TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "bert", "architectures": ["BertForQuestionAnswering"]})");
  ServiceOptions options{.models = {folder.path()}, .log_requests = false};
  options.resident.open_spans = [](const std::string&, const LoadedModelOptions&) {
    return std::make_unique<FirstWord>();
  };
  Service service(options);
  const auto answer = [&](const std::string& body) { return answer_of(service, "POST", "/predict", body); };
  const std::string one = R"({"question": "Who\tcame?", "context": "Anna came."})";
  EXPECT_EQ(answer(R"({"inputs": )" + one + "}").body, "{\"answer\":\"Anna\",\"score\":0.5}\n");
  EXPECT_EQ(answer(R"({"inputs": [)" + one + R"(], "parameters": {"top_k": 2}})").body,
      "[[{\"answer\":\"Anna\",\"score\":0.5}]]\n");
  for (const char* refused : {R"("text")", R"(["text"])"})
    EXPECT_EQ(answer(std::string(R"({"inputs": )") + refused + "}").status, 422);
  for (const char* wrong : {R"({"question": "Who?"})", "[]", "[1]", "null"})
    EXPECT_EQ(answer(std::string(R"({"inputs": )") + wrong + "}").status, 400) << wrong;
  const HttpAnswer other = answer_of(service, "POST", "/classify", R"({"inputs": "text"})");
  EXPECT_EQ(other.status, 400);
  EXPECT_NE(other.body.find("answers at /predict"), other.body.npos) << other.body;
}

// Computing spans holds up no request to another model, however many there are.
TEST(Service, OtherRequestsAreAnsweredWhileSpansAreComputed) {
  class Waiting : public FirstWord {
   public:
    explicit Waiting(std::shared_future<void> go_on) : go_on_(std::move(go_on)) {}
    std::vector<Answer> answer(const std::vector<std::string>& texts, int64_t top) override {
      EXPECT_EQ(go_on_.wait_for(std::chrono::seconds(30)), std::future_status::ready);
      return FirstWord::answer(texts, top);
    }

   private:
    const std::shared_future<void> go_on_;
  };
  const testing::TemporaryFolder folder;
  folder.write("config.json", R"({"model_type": "bert", "architectures": ["BertForQuestionAnswering"]})");
  std::promise<void> go_on;
  const std::shared_future<void> told = go_on.get_future();
  ServiceOptions options{.models = {folder.path()}, .log_requests = false};
  options.resident.open_spans = [&](const std::string&, const LoadedModelOptions&) {
    return std::make_unique<Waiting>(told);
  };
  Service service(options);
  std::promise<HttpAnswer> answers[3];
  for (std::promise<HttpAnswer>& answer : answers)
    service.handle(
        {.method = "POST", .path = "/predict", .body = R"({"inputs": {"question": "Who?", "context": "Anna came."}})"},
        std::make_shared<Exchange>(answer));
  EXPECT_EQ(answer_of(service, "POST", "/classify", "{").status, 400);
  go_on.set_value();
  for (std::promise<HttpAnswer>& answer : answers) EXPECT_EQ(answer.get_future().get().status, 200);
}

TEST(Service, OnlyItsOwnNamesAreAnswered) {
  Service service({.log_requests = false});
  const auto status_of = [&](const std::string& method, HttpHeaders headers, const std::string& host = "") {
    const std::string path = method == "GET" ? "/health" : "/v1/completions";
    const auto refused = service.refuse({.method = method, .path = path, .host = host, .headers = std::move(headers)});
    return refused ? refused->status : 200;
  };
  EXPECT_EQ(status_of("GET", {{"host", "evil.example"}}), 200);  // any name, until some are said
  service.allow_hosts({"localhost", "127.0.0.1", "[::1]", "box.lan"});
  for (const char* host :
      {"localhost", "LocalHost:8080", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:8080", "box.lan:1"})
    for (const char* method : {"GET", "POST"}) EXPECT_EQ(status_of(method, {{"host", host}}), 200) << host;
  for (const char* host : {"evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", "[::1", "[::2]:80",
           "evil.example:8080"}) {
    for (const char* method : {"GET", "POST"}) {
      EXPECT_EQ(status_of(method, {{"host", host}}), 403) << host;
      EXPECT_EQ(status_of(method, {{"host", host}, {"origin", std::string("http://") + host}}), 403) << host;
      EXPECT_EQ(status_of(method, {{"host", "localhost"}}, host), 403) << host;
    }
  }
  const auto refused = service.refuse({.method = "GET", .path = "/", .headers = {{"host", "evil.example"}}});
  EXPECT_EQ(std::ranges::count(refused->body, '\n'), 1) << refused->body;
}

TEST(Service, PagesOfOtherSitesAreRefused) {
  Service service({.log_requests = false});
  const auto is_refused = [&](const std::string& method, HttpHeaders headers) {
    headers.emplace_back("host", "localhost:1");
    return service.refuse({.method = method, .path = method == "GET" ? "/" : "/embed", .headers = headers}).has_value();
  };
  for (const char* method : {"GET", "POST"}) {
    EXPECT_TRUE(is_refused(method, {{"sec-fetch-site", "cross-site"}}));
    EXPECT_FALSE(is_refused(method, {{"sec-fetch-site", "same-origin"}}));
    EXPECT_FALSE(is_refused(method, {{"sec-fetch-site", "none"}, {"origin", "http://localhost:1"}}));
    EXPECT_FALSE(is_refused(method, {}));
    EXPECT_TRUE(is_refused(method, {{"origin", "http://localhost:2"}}));
    EXPECT_TRUE(is_refused(method, {{"origin", "null"}}));
  }
}
}  // namespace
}  // namespace linnet
