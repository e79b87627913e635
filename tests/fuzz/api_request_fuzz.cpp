// Any body of a request is either read or refused with status 400 and one line.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include "serving/http/api.h"
#include "serving/http/http.h"

namespace linnet {
extern const char* const kTryPage = "";  // which the build embeds elsewhere
}

namespace {
template <class Read> void only_refusals(Read read) {
  try {
    read();
  } catch (const linnet::ApiError& error) {
    // A key may hold anything; it is shown in JSON, where nothing can break a line.
    if (error.status != 400 || linnet::error_body(error).find('\n') != std::string::npos) std::abort();
  }
}
}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  only_refusals([&] {
    for (const auto& request : linnet::parse_completion_call(body).requests)
      if (request.has_tokens == request.tokens.empty()) std::abort();
  });
  only_refusals([&] { linnet::parse_chat_call(body); });
  only_refusals([&] { linnet::parse_embedding_call(body); });
  for (const char* path : {"/embed", "/classify", "/translate"})
    only_refusals([&] { linnet::parse_inputs_call(body, path); });
  return 0;
}
