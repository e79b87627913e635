// Generation with a Python decoder: positions, the loss of next tokens, and TextGenerator.
#include <linnet/decoder.h>
#include <linnet/error.h>
#include "api/python/learner.h"

namespace linnet::python {
namespace {
class PyGenerator {
 public:
  PyGenerator(nb::handle model, nb::list kept, const GeneratorOptions& options) : tree_(model, std::move(kept)) {
    auto* decoder = dynamic_cast<Decoder*>(&tree_.root());
    if (!decoder) fail_user("a TextGenerator writes with a linnet.Decoder");
    generator_ = without_gil([&] { return std::make_unique<TextGenerator>(*decoder, options); });
  }
  ~PyGenerator() {
    if (!nb::is_alive()) (void)generator_.release();
  }
  TextGenerator& generator() { return *generator_; }

 private:
  Tree tree_;
  std::unique_ptr<TextGenerator> generator_;
};

std::vector<std::vector<int32_t>> generate(PyGenerator& self, const std::vector<std::vector<int32_t>>& prompts,
    const GenerateOptions& options, const std::optional<nb::object>& listener) {
  std::exception_ptr stopped;
  const TextGenerator::Listener hear = [&](int64_t row, int32_t token, std::span<const float>) {
    const nb::gil_scoped_acquire gil;
    try {
      check_signals();
      return !listener || !(*listener)(row, token).is(nb::handle(Py_False));
    } catch (...) {
      stopped = std::current_exception();
      return false;
    }
  };
  auto texts = without_gil([&] { return self.generator().generate(prompts, options, hear); });
  if (stopped) std::rethrow_exception(stopped);
  return texts;
}
}  // namespace

void add_generator(nb::module_& module) {
  nb::class_<PyGenerator>(module, "GeneratorCore")
      .def("__init__",
          [](PyGenerator* self, nb::object model, nb::list kept, int64_t slots, int64_t max_length, bool cache,
              bool same_bits, int threads) {
            new (self) PyGenerator(model, std::move(kept), {slots, max_length, cache, same_bits, threads});
          })
      .def("take", [](PyGenerator& self, PyLearner& learner) { self.generator().take(learner.learner()); })
      .def("load", [](PyGenerator& self, const std::string& path) { self.generator().load(path); })
      .def("generate", [](PyGenerator& self, const std::vector<std::vector<int32_t>>& prompts, int64_t max_tokens,
                           double temperature, int64_t top_k, double top_p, uint64_t seed, std::vector<int32_t> ends,
                           const std::optional<nb::object>& listener) {
        return generate(self, prompts, {max_tokens, temperature, top_k, top_p, seed, std::move(ends)}, listener);
      });
}
}  // namespace linnet::python
