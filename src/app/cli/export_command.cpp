#include <cstdio>
#include <memory>

#include "app/cli/commands.h"
#include "app/cli/export_onnx.h"
#include "base/error.h"
#include "base/files.h"
#include "models/families/pretrained.h"
#include "tasks/language/language_model.h"
#include "tasks/task_table.h"
#include "training/run/pretrained_run.h"
#include "training/run/run_folder.h"

namespace linnet {
namespace {

// Of a decoder's model folder.
OpenedLanguageModel open_decoder(const std::string& folder) {
  if (is_pretrained_folder(folder) && open_pretrained(folder).family->kind != FamilyKind::kDecoder)
    fail_user("'" + folder + "' is a model folder, not a run: `linnet convert` writes it in another form");
  return open_language_model(folder);
}

struct Arguments {
  std::string run, out, adapter, onnx, precision = "fp32";
  int64_t opset = 17;
  bool overwrite = false, no_cache = false, joined_past = false;
};

// `folder` is free to be written to, or holds an export already that may be replaced.
void check_onnx_out(const Arguments& arguments) {
  if (file_exists(arguments.onnx + "/config.toml") || file_exists(arguments.onnx + "/model.safetensors"))
    fail_user("--onnx '" + arguments.onnx + "' is a run or a model folder; name another one");
  if (arguments.overwrite) return;
  for (const char* name : {"/model.onnx", "/encoder_model.onnx"})
    if (file_exists(arguments.onnx + name))
      fail_user("--onnx '" + arguments.onnx + "' holds a model already (" + (name + 1) +
                "); name another folder, or replace it with --overwrite");
}

// A folder that holds a model already: most likely another one, which must not be lost.
void check_out(const Arguments& arguments) {
  if (file_exists(arguments.out + "/config.toml"))
    fail_user("--out '" + arguments.out + "' is a run folder; name another one");
  if (arguments.overwrite) return;
  for (const char* name : {"/config.json", "/model.safetensors", "/model.safetensors.index.json"})
    if (file_exists(arguments.out + name))
      fail_user("--out '" + arguments.out + "' holds a model already (" + (name + 1) +
                "); name another folder, or replace it with --overwrite");
}

void check_adapter_out(const Arguments& arguments) {
  if (!file_exists(arguments.adapter + "/adapter_config.json") || arguments.overwrite) return;
  fail_user("--adapter '" + arguments.adapter +
            "' holds an adapter already; name another folder, or replace it with --overwrite");
}

int export_run(const Arguments& arguments) {
  if (!arguments.out.empty() + !arguments.onnx.empty() + !arguments.adapter.empty() != 1)
    fail_user("give one of --out DIR, --adapter DIR and --onnx DIR");
  if (!arguments.adapter.empty()) {
    check_adapter_out(arguments);
    export_adapters(arguments.run, arguments.adapter);
    return 0;
  }
  if (!arguments.onnx.empty()) {
    check_onnx_out(arguments);
    export_onnx({.model = arguments.run,
                 .out = arguments.onnx,
                 .opset = arguments.opset,
                 .precision = onnx_precision(arguments.precision),
                 .cache = !arguments.no_cache,
                 .joined_past = arguments.joined_past});
    return 0;
  }
  check_out(arguments);
  const RunFolder run(arguments.run);
  if (run.has_config())
    task_actions(run.load_config()).export_model(arguments.run, arguments.out);
  else
    export_language_model(open_decoder(arguments.run), arguments.out);
  return 0;
}

}  // namespace

void add_export_command(Command& linnet) {
  auto arguments = std::make_shared<Arguments>();
  linnet.subcommand("export", "write a model as a folder that other programs load (Hugging Face's layout, or ONNX)")
      .take("run", arguments->run, "a run folder, or with --onnx a model folder", {.required = true})
      .take("--out", arguments->out, "the folder to write, in Hugging Face's layout", {.type = "DIR"})
      .take("--adapter", arguments->adapter, "the folder to write a run's LoRA adapters in, in PEFT's layout",
            {.type = "DIR"})
      .take("--onnx", arguments->onnx, "the folder to write in ONNX", {.type = "DIR"})
      .take("--opset", arguments->opset, "of ONNX", {.least = 14, .most = 18, .show_default = true})
      .take("--precision", arguments->precision,
            "of ONNX weights and products: fp32, fp16, int8-dynamic (products of 8-bit numbers) or int8-qdq (weights "
            "of 8 bits; of a model that `linnet quantize` has calibrated, products of 8-bit numbers)",
            {.show_default = true})
      .flag("--no-cache", arguments->no_cache, "ONNX decoders without keys and values of earlier tokens")
      .flag("--joined-past", arguments->joined_past,
            "ONNX of GPT-2 with keys and values in one tensor: ONNX Runtime's optimizer fuses its attention")
      .flag("--overwrite", arguments->overwrite, "replace a model that is there")
      .does([arguments] { return export_run(*arguments); });
}

}  // namespace linnet
