#include <cstdio>
#include <memory>
#include "app/cli/build_version.h"
#include "app/cli/commands.h"
#include "base/text.h"
#include "base/thread_pool.h"
#include "engine/exec/backend.h"
#include "engine/kernels/isa.h"
#include "models/families/describe.h"
#include "tasks/task_table.h"
#include "training/run/memory_report.h"
#include "training/run/run_folder.h"
#include "training/trainer/trainer.h"

namespace linnet {

namespace {

int describe_device(const std::string& name) {
  const Device& opened = *open_backend(name).device;
  if (opened.is_host()) {
    std::printf("cpu: %s kernels\n", current_isa().c_str());
    return 0;
  }
  const DeviceInfo& device = opened.info();
  std::printf("%s (%s), %.1f of %.1f GB free\n", device.name.c_str(), device.detail.c_str(),
              static_cast<double>(device.free_bytes) / 1e9, static_cast<double>(device.memory_bytes) / 1e9);
  return 0;
}

int describe_program() {
  const std::string isas = joined(available_isas(), " ");
  std::printf("%s\n", build_version().c_str());
  std::printf("instruction sets  %s (best first; --isa chooses)\n", isas.c_str());
  const bool bf16 = cpu_precision(Precision::kBf16) == Precision::kBf16;
  std::printf("precision         %s\n",
              bf16 ? "fp32, bf16" : "fp32 (bf16 is computed in fp32: no instructions for it)");
  std::printf("threads           %d\n", available_threads());
  std::printf("memory            %.1f GB available\n", static_cast<double>(available_memory()) / 1e9);
  std::printf("libraries         %s\n", LINNET_LIBRARIES);
  return 0;
}

}  // namespace

void add_info_command(Command& linnet) {
  auto folder = std::make_shared<std::string>(), device = std::make_shared<std::string>();
  linnet.subcommand("info", "version, CPU features, threads, memory, libraries; or what a run or model folder holds")
      .take("MODEL", *folder, "a run folder, or a model folder (config.json, model.safetensors)", {.type = "MODEL"})
      .take_device(*device, "opens a GPU (cuda, cuda:N) and says what it is")
      .does([folder, device] {
        if (!device->empty()) return describe_device(*device);
        if (folder->empty()) return describe_program();
        const bool is_run = RunFolder(*folder).has_config();
        std::fputs((is_run ? describe_run(*folder) : describe_pretrained(*folder)).c_str(), stdout);
        return 0;
      });
}

}  // namespace linnet
