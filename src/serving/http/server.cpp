#include "serving/http/server.h"

#include <algorithm>
#include <cstdio>

#include "base/error.h"
#include "base/log.h"

namespace linnet {
void serve(const ServeOptions& options) {
  // Models end before the server does: their threads answer through it.
  auto service = std::make_unique<Service>(options.service);
  HttpServer server(*service, options.host, options.port, options.limits);
  service->count_connections([&] { return server.connections(); });
  const bool is_ipv6 = options.host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + options.host + "]" : options.host;
  for (const std::string& name : service->names()) std::printf("model %s\n", name.c_str());
  std::printf("http://%s:%d\n", host.c_str(), server.port());
  if (std::fflush(stdout) != 0) fail_system("cannot write to standard output");
  if (server.is_loopback() || !options.allowed_hosts.empty()) {
    std::vector<std::string> names = {"localhost", "127.0.0.1", "[::1]", host};
    names.insert(names.end(), options.allowed_hosts.begin(), options.allowed_hosts.end());
    for (std::string& name : names)
      std::ranges::transform(name, name.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c; });
    service->allow_hosts(std::move(names));
  }
  if (!server.is_loopback() && options.service.api_key_file.empty())
    log_warning("anyone who reaches " + host + " may use the models: --api-key-file FILE asks for a key");
  server.run([&] { service->reload(); });
  service.reset();
  log_info("all requests are answered");
}

}  // namespace linnet
