// Keys, figures for Prometheus and the form of errors, without sockets.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include "base/error.h"
#include "base/files.h"
#include "parsed_json.h"
#include "serving/http/api.h"
#include "serving/http/http.h"
#include "serving/http/service.h"
#include "temporary_folder.h"

namespace linnet {
namespace {
TEST(ApiKeys, TakeABearerOfAnyKeyOfTheFile) {
  const testing::TemporaryFolder folder;
  const std::string path = folder / "keys";
  const auto keys_of = [&](const std::string& text) {
    write_file_atomically(path, text);
    ::chmod(path.c_str(), 0600);
    return ApiKeys::load(path);
  };
  const ApiKeys keys = keys_of("\xEF\xBB\xBF# a comment\r\n\r\nfirst key \r\nsecond");
  for (const char* value : {"Bearer first key", "bearer second", "BEARER   second"})
    EXPECT_TRUE(keys.accept(value)) << value;
  for (const char* value :
      {"", "second", "Bearer", "Bearer ", "Bearer secon", "Bearer second2", "Bearer # a comment", "Basic second"})
    EXPECT_FALSE(keys.accept(value)) << value;
  EXPECT_EQ(key_of("BEARER   second"), key_of("Bearer second"));  // one client, however it spells the header
  EXPECT_THROW(keys_of("# nothing\n\n"), Error);
  EXPECT_FALSE(ApiKeys().needed());
  EXPECT_TRUE(equal_in_constant_time("", ""));
  EXPECT_FALSE(equal_in_constant_time("a", ""));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
}

TEST(Metrics, AreWrittenAsPrometheusReadsThem) {
  ServiceMetrics metrics;
  metrics.add("requests_total", {{"path", "/a\"\n\\"}}, 2);
  metrics.add("requests_total", {{"path", "/a\"\n\\"}});
  for (const double seconds : {0.001, 0.02, 100.0}) metrics.observe("seconds", {{"model", "m"}}, seconds);
  const std::string text = metrics.text();
  const auto has = [&](const std::string& line) { return text.find(line + "\n") != text.npos; };
  EXPECT_TRUE(has("# TYPE requests_total counter"));
  EXPECT_TRUE(has(R"(requests_total{path="/a\"\n\\"} 3)")) << text;
  EXPECT_TRUE(has("# TYPE seconds histogram"));
  EXPECT_TRUE(has(R"(seconds_bucket{le="0.001",model="m"} 1)")) << text;
  EXPECT_TRUE(has(R"(seconds_bucket{le="0.025",model="m"} 2)")) << text;
  EXPECT_TRUE(has(R"(seconds_bucket{le="+Inf",model="m"} 3)")) << text;
  EXPECT_TRUE(has(R"(seconds_sum{model="m"} 100.021)")) << text;
  EXPECT_TRUE(has(R"(seconds_count{model="m"} 3)")) << text;
}

TEST(ApiError, HasOpenAisForm) {
  const HttpResponse response = error_response(ApiError(429, "too \"many\"", "", "busy"));
  EXPECT_EQ(response.status, 429);
  const auto error = ParsedJson::parse(response.body)["error"];
  EXPECT_EQ(error["message"], "too \"many\"");
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_TRUE(error["param"].is_null());
  EXPECT_EQ(error["code"], "busy");
  EXPECT_EQ(response.headers, (HttpHeaders{{"Retry-After", "1"}}));
}

TEST(ApiAnswer, ClassesAreSortedAndCut) {
  const std::vector<float> rows{0.25f, 0.75f, 0.5f, 0.5f};
  EXPECT_EQ(format_classes(rows, {"a", "b"}, 1), R"([[{"label":"b","score":0.75}],[{"label":"a","score":0.5}]])");
  EXPECT_EQ(format_embeddings(rows, 2), "[[0.25,0.75],[0.5,0.5]]");
}

TEST(ApiAnswer, TextThatIsNotUtf8StaysJson) {
  const AnswerHead head{.id = "i", .model = "m"};
  const std::string event = format_piece_event(head, 0, "\xFF", nullptr, 0);
  EXPECT_TRUE(event.starts_with("data: {") && event.ends_with("}\n\n"));
  EXPECT_TRUE(ParsedJson::accept(event.substr(6)));
}
}  // namespace
}  // namespace linnet
