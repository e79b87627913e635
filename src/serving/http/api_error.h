// A request that is refused: an HTTP status and what OpenAI's clients look for in the body.
//
//   {"error": {"message": "...", "type": "invalid_request_error", "param": "prompt", "code": null}}
#pragma once
#include <stdexcept>
#include <string>

#include "serving/http/http.h"

namespace linnet {

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

}  // namespace linnet
