// `linnet serve`: models behind an HTTP server.
#pragma once
#include <functional>

#include "serving/http/http_server.h"
#include "serving/http/service.h"

namespace linnet {

struct ServeOptions {
  ServiceOptions service;
  HttpLimits limits;
  std::string host = "127.0.0.1";
  int port = 8080;
  // Names by which requests may call the server, besides localhost, 127.0.0.1, [::1] and `host`. At an address that
  // other machines reach they may call it by any name, unless this has one.
  std::vector<std::string> allowed_hosts;
};

// Returns when a signal has ended it and every accepted request is answered.
void serve(const ServeOptions& options);

}  // namespace linnet
