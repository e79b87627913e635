#include "serving/http/api_error.h"

#include "base/json.h"

namespace linnet {
namespace {

const char* type_of(int status) {
  if (status == 401) return "authentication_error";
  if (status == 403) return "permission_error";
  if (status == 429) return "rate_limit_error";
  return status >= 500 ? "server_error" : "invalid_request_error";
}

}  // namespace

std::string error_body(const ApiError& error) {
  Json inner;
  inner["message"] = error.what();
  inner["type"] = type_of(error.status);
  inner["param"] = nullptr;
  inner["code"] = nullptr;
  if (!error.param.empty()) inner["param"] = error.param;
  if (!error.code.empty()) inner["code"] = error.code;
  return Json{{"error", std::move(inner)}}.dump();
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response{.status = error.status, .body = error_body(error) + "\n"};
  if (error.status == 429) response.headers.emplace_back("Retry-After", "1");
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

}  // namespace linnet
