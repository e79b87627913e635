// The Python module linnet._linnet: errors, Python source lines, and the list of its parts.
#include <linnet/error.h>
#include <linnet/version.h>
#include <array>
#include "api/python/tree.h"
#include "base/signals.h"
#include "formats/packed_model.h"
#include "models/families/gguf.h"

namespace linnet::python {
namespace {
// Classes of python/linnet/errors.py by ErrorKind, once the package has set them; they live as long as the process.
std::array<PyObject*, 5> error_classes{};

// The package's folder, with a final slash; frames in it are not the user's.
std::string package_folder() {
  const auto file = nb::cast<std::string>(nb::module_::import_("linnet").attr("__file__"));
  return file.substr(0, file.rfind('/') + 1);
}
}  // namespace

void add_errors(nb::module_& module) {
  module.def(
      "set_errors", [](nb::object user, nb::object shape, nb::object numeric, nb::object machine, nb::object internal) {
        error_classes = {user.release().ptr(), shape.release().ptr(), numeric.release().ptr(), machine.release().ptr(),
            internal.release().ptr()};
      });
  module.def("line", [] { return python_line().text(); });
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      PyObject* known = error_classes[static_cast<size_t>(error.kind())];
      PyErr_SetString(known ? known : PyExc_RuntimeError, error.what());
    }
  });
}

SourceLine python_line() {
  static const std::string& package = *new std::string(package_folder());
  nb::object frame = nb::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame()));
  while (frame.is_valid() && !frame.is_none()) {
    const auto* raw = reinterpret_cast<PyFrameObject*>(frame.ptr());
    const nb::object code = frame.attr("f_code");
    const auto file = nb::cast<std::string>(code.attr("co_filename"));
    if (!file.starts_with(package))
      return intern_source_line(file, static_cast<uint32_t>(PyFrame_GetLineNumber(const_cast<PyFrameObject*>(raw))),
          nb::cast<std::string>(code.attr("co_name")));
    frame = frame.attr("f_back");
  }
  return intern_source_line("python", 0, "");
}

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}
}  // namespace linnet::python

NB_MODULE(_linnet, module) {
  using namespace linnet::python;
  nb::set_leak_warnings(false);  // programs may keep a learner or op until they end
  linnet::keep_signal_handlers();
  linnet::use_packed_models();
  linnet::use_gguf_models();
  module.doc() = "The compiled part of linnet.";
  module.attr("version") = linnet::version();
  add_errors(module);
  add_tensors(module);
  add_operations(module);
  add_optimizers(module);
  add_layers(module);
  add_data(module);
  add_learner(module);
  add_generator(module);
  add_own_op(module);
  add_models(module);
  add_tasks(module);
}
