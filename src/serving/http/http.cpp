#include "serving/http/http.h"
#include "base/json.h"

namespace linnet {
std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers)
    if (key == name) return value;
  return {};
}

const char* http_reason(int status) {
  static constexpr std::pair<int, const char*> kReasons[] = {{200, "OK"}, {400, "Bad Request"}, {401, "Unauthorized"},
      {403, "Forbidden"}, {404, "Not Found"}, {405, "Method Not Allowed"}, {408, "Request Timeout"},
      {413, "Content Too Large"}, {415, "Unsupported Media Type"}, {422, "Unprocessable Content"},
      {429, "Too Many Requests"}, {431, "Request Header Fields Too Large"}, {500, "Internal Server Error"},
      {503, "Service Unavailable"}};
  for (const auto& [known, reason] : kReasons)
    if (known == status) return reason;
  return "Status";
}

namespace {
const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}
}  // namespace

std::string error_body(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return Json{{"error", {{"message", error.what()}, {"type", type_of(error.status)}, {"param", or_null(error.param)},
                            {"code", or_null(error.code)}}}}
      .dump();
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_body(error) + "\n"};
  if (error.status == 429) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

// Files of src/serving/http/page, embedded by cmake/embed.cmake.
extern const char* const kTryPage;

HttpResponse try_page() {
  return {.type = "text/html; charset=utf-8",
      .body = kTryPage,
      .headers = {{"Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
          {"X-Content-Type-Options", "nosniff"}, {"Referrer-Policy", "no-referrer"}}};
}
}  // namespace linnet
