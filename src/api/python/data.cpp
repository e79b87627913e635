#include <linnet/dataset.h>
#include <linnet/error.h>
#include <linnet/pretrained_tokenizer.h>
#include <nanobind/stl/pair.h>
#include "api/cpp/helpers.h"
#include "api/python/learner.h"

namespace linnet::python {
namespace {
// Freed with the GIL by whichever thread releases it last.
template <class Object> std::shared_ptr<Object> shared(Object object) {
  return {new Object(std::move(object)), [](Object* kept) {
            if (!nb::is_alive()) return;
            const WithGil gil;
            delete kept;
          }};
}

// Adds a field from an array [samples, ...]. `copies`: Python may change the array later.
void add_field(
    Dataset& data, const std::string& name, nb::object values, std::optional<nb::object> dtype, bool copies) {
  const Converted all =
      convert(values, dtype ? std::optional(to_dtype(*dtype)) : std::nullopt, "the field \"" + name + "\"");
  const Shape& shape = all.type.shape;
  if (shape.rank() == 0) fail_user("the field \"", name, "\" is one number; an array of samples is wanted");
  data.add_bytes(
      name, {all.type.dtype, Shape(shape.sizes().subspan(1))}, all.bytes(), copies ? nullptr : shared(all.array));
}

Dataset from_function(int64_t size, const nb::dict& types, nb::object function) {
  const InputTypes expected = to_types(types);
  const auto call = shared(std::move(function));
  return Dataset::from_function(size, expected, [expected, call](int64_t index, Arrays& sample) {
    const PythonCall running("the function of a dataset is not called while Python ends");
    const WithGil gil;
    try {
      sample = to_arrays(nb::cast<nb::dict>((*call)(index)), expected);
    } catch (const nb::cast_error&) {
      fail_user("the function of a dataset returns a dict of arrays");
    } catch (nb::python_error& error) {
      // As text, which the loader's threads can copy without the GIL.
      fail_user("the function of a dataset failed at sample ", index, ": ", class_name(error.value()), ": ",
          nb::cast<std::string>(nb::str(error.value())));
    }
  });
}

void add_dataset(nb::module_& module) {
  using Free = nb::call_guard<WithoutGil>;
  nb::class_<Dataset>(module, "DatasetCore")
      .def(nb::init<>())
      .def("add", add_field)
      .def("add_sequences", &Dataset::add_sequences)
      .def_static("from_function", from_function)
      .def_static("idx", &Dataset::idx, Free())
      .def_static("image_folder", &Dataset::image_folder, Free())
      .def_static(
          "text",
          [](const std::string& path, const std::string& tokenizer, int64_t length) {
            return Dataset::text(path, *load_pretrained_tokenizer(tokenizer), length);
          },
          Free())
      .def_static("chunks",
          [](nb::object ids, int64_t length) {
            return Dataset::chunks(convert(ids, DType::kI32, "the ids").values<int32_t>(), length);
          })
      .def_static(
          "tsv",
          [](const std::string& path, const std::string& tokenizer, int64_t text_column, int64_t label_column,
              bool header, int64_t max_length) {
            return Dataset::tsv(
                path, *load_pretrained_tokenizer(tokenizer), text_column, label_column, header, max_length);
          },
          Free())
      .def("__len__", &Dataset::size)
      .def("sample", [](const Dataset& data, int64_t index) { return to_dict(data.sample(index)); })
      .def("sample_types", [](const Dataset& data) { return to_dict(data.sample_types()); })
      .def("select", &Dataset::select)
      .def("split", &Dataset::split);
}

void add_loader(nb::module_& module) {
  nb::class_<PyLoader>(module, "LoaderCore")
      .def("__init__",
          [](PyLoader* self, const Dataset& data, int64_t batch, bool shuffle, uint64_t seed, bool drop_last,
              int workers, int prefetch, std::vector<int64_t> buckets, bool pad_last) {
            const WithoutGil free;
            new (self)
                PyLoader(data, {batch, shuffle, seed, drop_last, workers, prefetch, std::move(buckets), pad_last});
          })
      .def("shapes", [](PyLoader& self) { return to_list(without_gil([&] { return self.loader().shapes(); })); })
      .def("__len__", [](PyLoader& self) { return self.loader().batches(); })
      .def("next", [](PyLoader& self) { return to_dict(without_gil([&] { return self.next(); })); })
      .def("position",
          [](PyLoader& self) {
            const LoaderPosition position = self.loader().position();
            return nb::make_tuple(position.epoch, position.batch);
          })
      .def("seek", [](PyLoader& self, int64_t epoch, int64_t batch) {
        without_gil([&] { self.loader().seek({epoch, batch}); });
      });
}
}  // namespace

PyLoader::PyLoader(const Dataset& data, const LoaderOptions& options)
    : data_(data), options_(options), loader_(std::make_unique<Loader>(data, options)) {}

PyLoader::~PyLoader() {
  if (guard_.is_child() || !nb::is_alive()) (void)loader_.release();
  else without_gil([&] { loader_.reset(); });  // its workers may wait for the GIL
}

Loader& PyLoader::loader() {
  if (guard_.is_child()) {
    (void)loader_.release();
    loader_ = std::make_unique<Loader>(data_, options_);
    guard_ = ForkGuard();
    busy_ = false;
  }
  return *loader_;
}

Arrays PyLoader::next() {
  Loader& opened = loader();
  const Busy busy(busy_, "the loader");
  return opened.next();
}

void add_data(nb::module_& module) {
  add_dataset(module);
  add_loader(module);
  module.def("array_type",
      [](nb::object value, const std::string& name) { return to_tuple(convert(value, {}, "\"" + name + "\"").type); });
}
}  // namespace linnet::python
