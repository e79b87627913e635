#include <algorithm>
#include <csignal>
#include "app/cli/commands.h"
#include "app/cli/streams-inl.h"
#include "base/log.h"
#include "base/text.h"
#include "engine/kernels/processor.h"
#ifdef LINNET_SERVER
#include "serving/http/http.h"
#include "serving/http/service.h"
#endif

namespace linnet {
#ifdef LINNET_SERVER

namespace {
struct ServeArguments {
  ServiceOptions service;
  HttpLimits limits;
  std::string host = "127.0.0.1", isa = "auto";
  int port = 8080;
  // Host names that requests may use besides localhost, 127.0.0.1, [::1] and `host`. If other machines reach the
  // address, all names are allowed unless this has one.
  std::vector<std::string> allowed_hosts;
  int64_t body_megabytes = 4;
  bool quiet = false;
};

// Returns after a stop signal, once every accepted request is answered.
int serve(ServeArguments& arguments) {
  std::signal(SIGPIPE, SIG_IGN);  // goes on where nobody reads its log
  force_isa(arguments.isa);
  arguments.limits.body_bytes = static_cast<uint64_t>(arguments.body_megabytes) << 20;
  arguments.service.log_requests = !arguments.quiet;
  arguments.service.resident.open_spans = [](const std::string& folder, const LoadedModelOptions& resident) {
    constexpr int64_t kRows = 8;  // texts computed at once
    return open_predictor(folder, {resident}, kRows);
  };
  auto loaded = std::make_unique<Service>(arguments.service);
  HttpServer server(*loaded, arguments.host, arguments.port, arguments.limits);
  std::unique_ptr<Service> service = std::move(loaded);  // ends before the server, through which its threads answer
  service->count_connections([&] { return server.connections(); });
  const bool is_ipv6 = arguments.host.find(':') != std::string::npos;
  const std::string host = is_ipv6 ? "[" + arguments.host + "]" : arguments.host;
  for (const std::string& name : service->names()) print("model {}\n", name);
  print("http://{}:{}\n", host, server.port());
  flush_output();
  if (server.is_loopback() || !arguments.allowed_hosts.empty()) {
    std::vector<std::string> names = {"localhost", "127.0.0.1", "[::1]", host};
    names.insert(names.end(), arguments.allowed_hosts.begin(), arguments.allowed_hosts.end());
    for (std::string& name : names) name = lower_ascii(name);
    service->allow_hosts(std::move(names));
  }
  if (!server.is_loopback() && arguments.service.api_key_file.empty())
    log_warning("anyone who reaches " + host + " may use the models: --api-key-file FILE asks for a key");
  server.run([&] { service->reload(); });
  service.reset();
  log_info("all requests are answered");
  return 0;
}
}  // namespace

void add_serve_command(Command& linnet) {
  auto [command, arguments] = linnet.subcommand("serve",
      "answer requests over HTTP: completions, conversations and embeddings as OpenAI's clients ask "
      "for them, translations, classes; a page to try the models is at /",
      serve);
  ServiceOptions& service = arguments.service;
  command
      .take("MODEL", service.models,
          "runs and model folders that write, translate, classify, label, answer or embed texts; NAME=FOLDER gives "
          "one another name",
          {.required = true, .type = "MODEL"})
      .take("--host", arguments.host, "the address to listen on (default 127.0.0.1: this machine alone)")
      .take("--port", arguments.port, "0: any (default 8080)", {.least = 0, .most = 65535})
      .take("--allowed-host", arguments.allowed_hosts,
          "a name by which requests may call the server; may be given several times (default: localhost, 127.0.0.1 "
          "and [::1] at an address of this machine alone, any name at others)",
          {.type = "NAME"})
      .take("--slots", service.resident.text.slots, "texts that a model writes at once (default 8)",
          {.least = 1, .most = 1024})
      .take("--queue", service.resident.limits.waiting,
          "texts of a client that may wait for a model, before 429 (default 64)", {.least = 0, .most = 1e6})
      .take("--beam", service.resident.text.beams,
          "the most beams that a request may ask for (default: what the model's author or run asks for)",
          {.least = 0, .most = 1024})
      .take("--context", service.resident.text.max_length,
          "tokens of a text, with its prompt (default: the model's, at most 2048)", {.least = 0, .most = 1e7})
      .take("--draft", service.drafts,
          "a smaller model of the same tokenizer that guesses tokens for a language model, which checks several in "
          "one step: the same texts, sooner; NAME=MODEL where there are several models",
          {.type = "MODEL"})
      .take("--draft-tokens", service.resident.draft_tokens, "tokens that a draft model guesses at once (default 4)",
          {.least = 1, .most = 64})
      .take("--prefix-cache", service.resident.prefix_megabytes,
          "MB of each language model for beginnings of prompts, which later requests need not compute; 0: none "
          "(default: as much as its slots, at most 256)",
          {.least = 0, .most = 1e7})
      .take("--max-tokens", service.max_tokens,
          "the most tokens that a request may ask for (default: all of --context)", {.least = 0, .most = 1e7})
      .take("--api-key-file", service.api_key_file, "requests must bear a key of this file, which has one on each line",
          {.type = "FILE"})
      .take("--request-seconds", arguments.limits.request_seconds, "until a request is given up with 408 (default 600)",
          {.least = 0.01, .most = 1e6})
      .take("--read-seconds", arguments.limits.read_seconds,
          "in which a request must have come whole, before 408 (default 30)", {.least = 0.01, .most = 1e6})
      .take("--write-seconds", arguments.limits.write_seconds,
          "in which a client must take some of its answer, before it is cut off (default 30)",
          {.least = 0.01, .most = 1e6})
      .take("--body-mb", arguments.body_megabytes, "the largest body of a request, before 413 (default 4)",
          {.least = 1, .most = 1024})
      .take("--connections", arguments.limits.connections,
          "open at once; one more closes an idle one, or waits (default 1024)", {.least = 1, .most = 1e5})
      .flag("--log-text", service.log_text, "also log what requests say, which may be private")
      .flag("--quiet", arguments.quiet, "no line in the log for each request")
      .take_adapters(service.resident.adapters, true)
      .take_load(service.resident)
      .take_isa(arguments.isa);
}

#else

namespace {
int serve(std::vector<std::string>&) {
  fail_user("this build has no server: it was built without Boost's headers (Debian's package libboost-dev)");
}
}  // namespace

void add_serve_command(Command& linnet) {
  auto [command, models] = linnet.subcommand("serve", "answer requests over HTTP (this build has no server)", serve);
  command.take("MODEL", models, "models", {.type = "MODEL"});
}

#endif
}  // namespace linnet
