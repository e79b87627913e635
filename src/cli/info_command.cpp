#include <CLI/CLI.hpp>
#include <cstdio>

#include "app/memory_report.h"
#include "base/thread_pool.h"
#include "cli/commands.h"
#include "kernels/isa.h"
#include "pretrained/describe.h"

namespace linnet {

void add_info_command(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("info", "version, CPU features, threads, memory, libraries; or a model folder");
  auto folder = std::make_shared<std::string>();
  command->add_option("MODEL", *folder, "a model folder (config.json, model.safetensors): its family and sizes");
  command->callback([&action, folder] {
    action = [folder] {
      if (!folder->empty()) {
        std::fputs(describe_pretrained(*folder).c_str(), stdout);
        return 0;
      }
      std::string isas;
      for (const std::string& isa : available_isas()) isas += (isas.empty() ? "" : " ") + isa;
      std::printf("linnet            %s\n", LINNET_VERSION);
      std::printf("instruction sets  %s (best first; --isa chooses)\n", isas.c_str());
      std::printf("threads           %d\n", available_threads());
      std::printf("memory            %.1f GB available\n", static_cast<double>(available_memory()) / 1e9);
      std::printf("libraries         %s\n", LINNET_LIBRARIES);
      return 0;
    };
  });
}

}  // namespace linnet
