#include "serving/http/try_page.h"

namespace linnet {

// The files of src/serving/http/page, as the build embeds them (cmake/embed.cmake).
extern const char* const kTryPage;

HttpResponse try_page() {
  return {.type = "text/html; charset=utf-8",
          .body = kTryPage,
          .headers = {{"Content-Security-Policy",
                       "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                       "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}}};
}

}  // namespace linnet
