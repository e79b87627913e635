#include <cstdio>
#include <memory>
#include "app/cli/commands.h"
#include "base/error.h"
#include "tasks/calibration.h"

namespace linnet {
namespace {

struct QuantizeArguments : CalibrationRequest {
  std::string method_name = "minmax", out;
};

int quantize(QuantizeArguments arguments) {
  arguments.method = calibration_method(arguments.method_name);
  const StaticScales scales = calibrate(arguments);
  save_quantized(arguments.model, scales, arguments.out);
  std::printf("%s: %zu layers in static int8, scales by %s of %lld examples\n", arguments.out.c_str(),
              scales.input_scales.size(), scales.method.c_str(), static_cast<long long>(scales.examples));
  return 0;
}

}  // namespace

void add_quantize_command(Command& linnet) {
  auto arguments = std::make_shared<QuantizeArguments>();
  linnet
      .subcommand("quantize",
                  "find scales for static int8 on examples; commands then run the model in int8 unless --quantize says "
                  "otherwise")
      .take("MODEL", arguments->model, "a run or a model folder", {.required = true})
      .take(
          "--calibrate", arguments->examples,
          "a file with an example on each line: a text (of a .tsv for a classifier what is before the first tab), for "
          "translation source<TAB>target; for images a folder of them",
          {.required = true, .type = "FILE"})
      .take("-o,--out", arguments->out,
            "the folder to write the model and its scales to; MODEL itself: the scales are added there",
            {.required = true, .type = "DIR"})
      .take("--method", arguments->method_name,
            "how far the 8 bits reach: minmax (the largest value seen; default), percentile (99.99% of the values) or "
            "entropy (the least change of their distribution)",
            {.choices = calibration_methods()})
      .take("--examples", arguments->most, "read so many examples at most (default 512)",
            {.type = "N", .least = kFewestExamples, .most = 1e9})
      .take("--keep", arguments->keep,
            "parameters that stay in fp32 (* stands for any characters); may be given several times", {.type = "NAME"})
      .take_threads(arguments->threads)
      .does([arguments] { return quantize(*arguments); });
}

}  // namespace linnet
